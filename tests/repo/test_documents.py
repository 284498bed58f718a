"""Documents that are made from the code, or say what it says, are current."""

from __future__ import annotations

import re
from pathlib import Path

from options_page import options_page

from perf.__main__ import PROGRAMS
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.settings import SET, settings_table
from tests.support.places import ROOT
from tests.support.prose import anchors, links

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DOCUMENTS = [*PAGES, ROOT / "action" / "action.yml"]


def test_the_page_of_options_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page()


def place(path: Path) -> str:
    """A page's place in the repository."""
    return str(path.relative_to(ROOT))


def test_no_row_of_a_table_is_broken_by_a_bar() -> None:
    broken = []
    for path in PAGES:
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for table in re.findall(r"(?:^\|[^\n]*\n)+", text, re.MULTILINE):
            head, *rows = table.splitlines()
            bars = [len(re.findall(r"(?<!\\)\|", row)) for row in (head, *rows)]
            broken += [
                f"{place(path)}: {row}" for row, count in zip(rows, bars[1:], strict=True) if count != bars[0]
            ]
    assert not broken


def test_links_lead_somewhere() -> None:
    astray = []
    for path in PAGES:
        for target in links(path.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            page = path.parent / name if name else path
            if not name.startswith("http") and not (
                page.exists() and (not anchor or anchor in anchors(page.read_text(encoding="utf-8")))
            ):
                astray.append(f"{place(path)}: {target}")
    assert not astray


def test_the_page_of_releases_names_the_versions_of_the_constraints() -> None:
    pinned = (ROOT / "constraints.txt").read_text() + (ROOT / "constraints-own-torch.txt").read_text()
    text = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8").lower()
    for package in ("pytest", "torch", "transformers"):
        (version,) = re.findall(rf"^{package}[<=]=(\d+\.\d+)", pinned, re.MULTILINE)
        assert re.search(rf"\b{package} {re.escape(version)}\b", text)


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / name).resolve() for name in links(index.read_text(encoding="utf-8"))}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= listed


def test_anchors_are_those_of_github() -> None:
    page = "## The same `--eval-data`, again\n\nText.\n"
    assert anchors(page) == {"the-same---eval-data-again"}


def test_documents_name_exit_codes_that_there_are() -> None:
    unknown = [
        f"{place(path)}: {code}"
        for path in DOCUMENTS
        for code in re.findall(r"exit code (?:is (?:then )?)?(\d+)", path.read_text(encoding="utf-8"))
        if int(code) not in set(ExitCode)
    ]
    assert not unknown


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


def test_documents_name_options_that_there_are() -> None:
    table = [row for row in settings_table().values() if row.option]
    known = {SET, *(flag for row in table for flag in (row.short, row.long_flag) if flag)}
    keys = {row.name for row in table} | {"KEY"}
    flags = re.compile(r"(?<![\w-])--(?:eval|gate|baseline)[a-z-]*(?:=strict)?")
    unknown = [
        f"{place(path)}: {flag}"
        for path in DOCUMENTS
        for flag in set(flags.findall(path.read_text(encoding="utf-8"))) - known
    ]
    assert not unknown
    unknown = [
        f"{place(path)}: {key}"
        for path in DOCUMENTS
        for key in set(re.findall(rf"{SET}[ =](\w+)", path.read_text(encoding="utf-8"))) - keys
    ]
    assert not unknown


def test_documents_name_all_programs_of_perf_and_no_others() -> None:
    named = {
        program
        for path in DOCUMENTS
        for program in re.findall(r"python -m perf[ .]([a-z]\w*)", path.read_text(encoding="utf-8"))
    }
    assert named == set(PROGRAMS)
    assert not [path for path in DOCUMENTS if "-m perf." in path.read_text(encoding="utf-8")]
    for program in PROGRAMS:
        assert "\ndef main() -> None:\n" in (ROOT / "perf" / f"{program}.py").read_text(encoding="utf-8")
