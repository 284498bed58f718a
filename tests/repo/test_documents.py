"""Documents that are made from the code, or say what it says, are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_touchstone.core.exit_codes import ExitCode
from pytest_touchstone.core.settings import options_page, settings_table
from tests.support.places import ROOT
from tests.support.prose import FENCED, anchors, links, sentences, words

MOST_WORDS = 35
"""Words of a sentence that a reader takes in at once."""


def test_the_page_of_options_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page()


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = [*PAGES, ROOT / "docs" / "action" / "action.yml"]


def place(path: Path) -> str:
    """A page's place in the repository."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=place)
def test_no_sentence_is_long(path: Path) -> None:
    found = sentences(path.read_text(encoding="utf-8"))
    assert not [sentence for sentence in found if words(sentence) > MOST_WORDS]


@pytest.mark.parametrize("path", PAGES, ids=place)
def test_links_lead_somewhere(path: Path) -> None:
    astray = []
    for target in links(path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        page = path.parent / name if name else path
        if not name.startswith("http") and not (
            page.exists() and (not anchor or anchor in anchors(page.read_text(encoding="utf-8")))
        ):
            astray.append(target)
    assert not astray


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / name).resolve() for name in links(index.read_text(encoding="utf-8"))}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= listed


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=place)
def test_lines_of_prose_fit_a_screen(path: Path) -> None:
    lines = FENCED.sub("", path.read_text(encoding="utf-8")).splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.startswith(("|", "    "))]


def test_long_sentences_and_anchors_are_found() -> None:
    text = "## The same `--eval-data`, again\n\nOne. " + "Two " * 36 + "8. " + "\n\n- three\n- four\n"
    assert [words(one) for one in sentences(text)] == [1, 37, 1, 1]
    assert anchors(text) == {"the-same---eval-data-again"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=place)
def test_documents_name_exit_codes_that_there_are(path: Path) -> None:
    named = re.findall(r"exit code (?:is (?:then )?)?(\d+)", path.read_text(encoding="utf-8"))
    assert {int(code) for code in named} <= set(ExitCode)


def test_the_readme_says_of_each_exit_code_what_the_code_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^Exit codes: (.*?)\. A wrong answer", text, re.DOTALL | re.MULTILINE)
    said = dict(part.split(" ", 1) for part in " ".join(paragraph.split()).split("; "))
    assert {"4", "8", "9"} <= set(said)
    for code, sentence in said.items():
        assert ExitCode(int(code)).sentence.startswith(sentence)


def test_the_page_of_the_gate_tells_the_exit_codes_of_a_gate() -> None:
    text = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| exit code \| \|\n\| --- \| --- \|\n(.*?)\n\n", text, re.DOTALL)
    told = {int(line.split("|")[1]) for line in table.splitlines()}
    assert told == {ExitCode.OK, ExitCode.WORSE, ExitCode.NOT_VALID, ExitCode.MISTAKE}


@pytest.mark.parametrize("path", DOCUMENTS, ids=place)
def test_documents_name_options_that_there_are(path: Path) -> None:
    table = settings_table().values()
    known = {flag for row in table for flag in (row.short, row.long_flag, *row.formerly) if flag}
    named = re.findall(
        r"(?<![\w-])--(?:eval|gate|baseline)[a-z-]*(?:=strict)?", path.read_text(encoding="utf-8")
    )
    assert set(named) <= known
