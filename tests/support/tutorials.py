"""Tutorials as programs: their files are written, their commands run, and what they print is compared.

A tutorial is Markdown. A fenced block whose info string names a file (``python test_capitals.py``) is that file. In a
``console`` block a line that begins with ``$ `` is a command, and what follows it is what it prints.

    what the tutorial shows     what may be printed instead
    a line                      the same line, with other digits
    ``...``                     any lines
    ``# exit code 8``           nothing: the command's exit code, 0 where there is no such line

``python -m tests.support.tutorials`` runs all tutorials and writes what their commands print into them, where it
differs; lines that stand for ``...`` stay left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"# exit code (\d+)")
COLUMNS = "100"


@dataclass
class Step:
    """A command of a tutorial, the lines that it is shown to print, and its exit code."""

    command: str
    shown: list[str] = field(default_factory=list)
    code: int = 0


def tutorials() -> list[Path]:
    """Return the pages of tutorials."""
    return sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def files_of(text: str) -> dict[str, str]:
    """Return the files that a tutorial shows, by name."""
    named = {}
    for block in FENCE.finditer(text):
        _, _, name = block["info"].partition(" ")
        if name:
            named[name] = block["text"]
    return named


def steps_of(text: str) -> list[Step]:
    """Return the commands that a tutorial shows, in order."""
    steps: list[Step] = []
    for block in FENCE.finditer(text):
        if block["info"] != "console":
            continue
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif steps and steps[-1].command.endswith("\\"):
                steps[-1].command = steps[-1].command[:-1] + line.strip()
            elif found := CODE.fullmatch(line):
                steps[-1].code = int(found[1])
            else:
                steps[-1].shown.append(line)
    return steps


def run(command: str, folder: Path) -> tuple[int, list[str]]:
    """Run a command of a tutorial in its folder; return its exit code and the lines that it prints."""
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hidden = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "TOUCHSTONE_DATA", "FORCE_COLOR")
    known = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=known | {"PATH": place, "COLUMNS": COLUMNS, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, [line.rstrip() for line in done.stdout.splitlines()]


def plain(line: str) -> str:
    """Return a line without what differs from run to run: digits, and the width that they take."""
    return re.sub(r"[\d.,]*\d", "#", re.sub(r"\s+|[-=─━]{3,}", " ", line)).strip()


def matches(shown: list[str], printed: list[str]) -> str | None:
    """Return the first line that is shown and not printed at its place; None where there is none."""
    place, anywhere = 0, False
    for line in shown:
        if line.strip() == "...":
            anywhere = True
            continue
        rest = [plain(one) for one in printed[place:]]
        if plain(line) not in (rest if anywhere else rest[:1]):
            return line
        place += rest.index(plain(line)) + 1
        anywhere = False
    return None if anywhere or not any(line.strip() for line in printed[place:]) else "(the end)"
