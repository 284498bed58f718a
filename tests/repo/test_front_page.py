"""What the README shows is so: benchmarks, figures, the picture, the example."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest
import terminal_picture

from tests.support.forking import python
from tests.support.places import ROOT
from tests.support.prose import paragraphs
from tests.support.tutorials import matches, run

README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text below a heading of the README."""
    return README.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def declared() -> dict[str, str]:
    """The primary metric of each shipped benchmark."""
    command = [python(), "-m", "pytest_touchstone.cli", "benchmarks", "--format", "json"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {one["name"]: one["metrics"][0] for one in json.loads(listed)}


def test_it_has_the_two_commands_as_they_are_documented() -> None:
    first = "pip install -c constraints.txt -e '.[all]' && touchstone checkpoint fetch smollm2-135m && pytest evals/"
    second = "pip install -c constraints.txt -e '.[test]' && pytest tests/"
    lines = [line.strip() for line in section("Start").splitlines()]
    assert lines.index(second) == lines.index(first) + 1


def test_benchmarks_and_their_primary_metrics_are_those_of_the_code() -> None:
    shown = dict(re.findall(r"`(\w+)`\s+([\w@]+)", section("Benchmarks")))
    table = (ROOT / "docs" / "shipped-benchmarks.md").read_text(encoding="utf-8")
    names = {name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cell.split(", ")}
    assert shown.items() <= declared().items()
    assert len(shown) >= 16
    assert {f"`{name}`" for name in declared()} == names


def test_the_figures_of_the_facts_stand_in_the_pages_that_they_name() -> None:
    facts = [text for text in paragraphs(README) if text.startswith("**") and "](" in text][:3]
    assert len(facts) == 3
    absent = []
    for fact in facts:
        (page,) = re.findall(r"\]\((docs/[\w-]+\.md)#", fact)
        text = (ROOT / page).read_text(encoding="utf-8")
        figures = re.findall(r"\d[\d,.]*\d", fact.partition("](")[0])
        assert figures
        absent += [f"{page}: {figure}" for figure in figures if figure not in text]
    assert not absent


def test_the_picture_shows_what_is_printed_today() -> None:
    svg = terminal_picture.PICTURE.read_text(encoding="utf-8")
    texts = re.findall(r"<text class=\"terminal-r\d+\" .*?clip-path=\"[^\"]*\">(.*?)</text>", svg)
    shown = re.sub(r"\s", "", html.unescape("".join(texts)))
    assert shown == re.sub(r"\s", "", terminal_picture.report(color=False))
    assert "@font-face" not in svg
    assert "@import" not in svg


def test_no_interval_of_the_picture_leaves_the_range_of_its_metric() -> None:
    limits = re.findall(r"\[ *(-?[\d.]+), *(-?[\d.]+)\]", terminal_picture.report(color=False))
    assert limits
    assert all(0 <= float(limit) <= 1 for pair in limits for limit in pair)


@pytest.mark.slow
def test_the_example_prints_what_it_shows(tmp_path: Path) -> None:
    example = re.sub(r"^ {4}", "", section("A benchmark of your own, in 90 seconds"), flags=re.MULTILINE)
    code, _, shown = example.partition("\n$ ")
    (tmp_path / "test_capitals.py").write_text(code.partition("in any folder:")[2], encoding="utf-8")
    command, *lines = shown.rstrip().splitlines()
    exit_code, printed = run(command, tmp_path)
    assert exit_code == 0
    assert matches(["...", lines[0], "...", *lines[2:], "..."], printed) is None


def test_the_example_is_the_tutorials() -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "own-benchmark.md").read_text(encoding="utf-8")
    example = re.sub(r"^ {4}", "", section("A benchmark of your own, in 90 seconds"), flags=re.MULTILINE)
    _, _, function = example.partition("def test_capitals")
    assert function.partition("\n\n")[0] in tutorial
