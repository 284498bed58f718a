"""``touchstone fetch NAME``: gets a builtin checkpoint into the user's cache."""

from __future__ import annotations

import argparse
import sys

from harness.checkpoints.builtin import fetch
from harness.cli.command import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("name", metavar="NAME", help="smollm2-135m")


def run(options: argparse.Namespace) -> Output:
    """Fetch it, saying what is done; beside JSON on stderr."""
    stream = sys.stderr if options.json else sys.stdout
    path = fetch(options.name, say=lambda text: print(text, file=stream))
    return Output({"name": options.name, "path": str(path)})
