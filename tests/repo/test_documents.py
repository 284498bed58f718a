"""Documents that are made from the code, or say what it says, are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.core.exit_codes import ExitCode
from harness.core.settings import options_page, settings_table
from tests.support.places import ROOT


def test_the_page_of_options_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page()


DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "docs" / "action" / "action.yml",
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_exit_codes_that_there_are(path: Path) -> None:
    named = re.findall(r"exit code (?:is (?:then )?)?(\d+)", path.read_text(encoding="utf-8"))
    assert {int(code) for code in named} <= set(ExitCode)


def test_the_readme_says_of_each_exit_code_what_the_code_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^Exit codes: (.*?)\. A wrong answer", text, re.DOTALL | re.MULTILINE)
    said = dict(part.split(" ", 1) for part in " ".join(paragraph.split()).split("; "))
    assert {"4", "8", "9"} <= set(said)
    for code, words in said.items():
        assert ExitCode(int(code)).sentence.startswith(words)


def test_the_page_of_the_gate_tells_the_exit_codes_of_a_gate() -> None:
    text = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| exit code \| \|\n\| --- \| --- \|\n(.*?)\n\n", text, re.DOTALL)
    told = {int(line.split("|")[1]) for line in table.splitlines()}
    assert told == {ExitCode.OK, ExitCode.WORSE, ExitCode.NOT_VALID, ExitCode.MISTAKE}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_options_that_there_are(path: Path) -> None:
    table = settings_table().values()
    known = {flag for row in table for flag in (row.short, row.long_flag, *row.formerly) if flag}
    named = re.findall(
        r"(?<![\w-])--(?:eval|gate|baseline)[a-z-]*(?:=strict)?", path.read_text(encoding="utf-8")
    )
    assert set(named) <= known
