"""A command of another package: one module and an entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.installed import install, touchstone
from tests.support.lines import missing

CODE = """
from pytest_touchstone.cli.command import Command, Output, add_output
from pytest_touchstone.core.errors import HarnessError

def add_arguments(parser):
    parser.add_argument("word")
    add_output(parser)

def run(options):
    if options.word == "wrong":
        raise HarnessError("'wrong' is no word; give another")
    length = len(options.word)
    return Output({"length": length}, lambda: f"{options.word}: {length}", length % 2, markdown=f"**{length}**")

FORMATS = ("text", "json", "markdown")
COMMAND = Command(name="count", help="the length of a word", add_arguments=add_arguments, run=run, formats=FORMATS)
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return install(tmp_path / "packages", "counting", CODE, {"touchstone.commands": "COMMAND"})


def test_an_installed_command_is_listed_and_prints_text_json_and_markdown(
    tmp_path: Path, packages: Path
) -> None:
    told = touchstone("--help", cwd=tmp_path, packages=packages)
    assert re.search(r"^    count +the length", told.stdout, re.MULTILINE)
    for extra, printed in (
        ((), "four: 4\n"),
        (
            (
                "--format",
                "markdown",
            ),
            "**4**\n",
        ),
    ):
        found = touchstone("count", "four", *extra, cwd=tmp_path, packages=packages)
        assert (found.returncode, found.stdout, found.stderr) == (0, printed, "")
    found = touchstone("count", "odd", "--format", "json", cwd=tmp_path, packages=packages)
    assert (found.returncode, json.loads(found.stdout)) == (1, {"length": 3})


def test_its_mistakes_are_one_line_and_exit_code_4(tmp_path: Path, packages: Path) -> None:
    found = touchstone("count", "wrong", cwd=tmp_path, packages=packages)
    assert (found.returncode, found.stdout) == (4, "")
    (line,) = found.stderr.splitlines()
    assert "'wrong'" in line


def test_a_command_that_cannot_be_loaded_is_named_and_stops_no_command_of_ours(tmp_path: Path) -> None:
    packages = install(tmp_path / "p", "broken", "import nowhere", {"touchstone.commands": "COMMAND"})
    found = touchstone("nonsense", cwd=tmp_path, packages=packages)
    assert found.returncode == 4
    (line,) = found.stderr.splitlines()
    assert not missing(line, "command broken", "broken:COMMAND", "ModuleNotFoundError", "'nowhere'")
    assert touchstone("runs", cwd=tmp_path, packages=packages).stdout == "no runs in results/\n"
