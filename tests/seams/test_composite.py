"""Composites of a project's own: in a conftest, in a benchmark file, in pyproject.toml."""

from __future__ import annotations

import re

import pytest

from pytest_touchstone.results.summary import load_summary
from tests.support.lines import missing
from tests.support.toys import make, score, told

DECLARED = (
    'from pytest_touchstone import composite\n\ncomposite("mix", {"toys:acc": 0.5, "toys:half": 0.5})\n'
)
TABLE = '[tool.touchstone.composites]\nsolid = { "toys:acc" = 1.0 }\n'


def test_composites_of_a_conftest_and_of_pyproject_are_shown_compared_gated_and_ranked(
    pytester: pytest.Pytester,
) -> None:
    project = make(pytester.path)
    (project / "conftest.py").write_text(DECLARED)
    (project / "pyproject.toml").write_text(TABLE)
    first = score(pytester, 40, "first")
    assert re.search(r"mix +composite +0\.6500", first.stdout), first.stdout
    assert re.search(r"solid +composite +0\.8000", first.stdout)
    worse = score(pytester, 90, "worse", "--gate", "--eval-set", "gate_metric=solid", "-n", "1")
    assert worse.returncode == 8
    assert "solid is worse (-25.00 points)" in worse.stdout
    (project / "conftest.py").unlink()  # results keep the composites that their benchmark is part of
    compared = told(project, "compare", "first", "worse")
    assert not missing(compared, "0.5 toys:acc", "0.5 toys:half")
    table = told(project, "report", "first", "worse", "--format", "markdown")
    (row,) = [line for line in table.splitlines() if line.startswith("| `fake-causal` |")]
    assert re.findall(r"(\d\d\.\d\d) \[", row) == ["45.00", "55.00", "52.50"]
    assert not missing(row, "[38.26, 51.92]", "[48.08, 61.74]", "[48.80, 56.10]")
    assert [one["name"] for one in load_summary(project / "results" / "worse").composites] == ["solid", "mix"]


def test_one_name_with_two_formulas_is_a_mistake_of_one_line(pytester: pytest.Pytester) -> None:
    project = make(pytester.path)
    (project / "conftest.py").write_text(DECLARED)
    with (project / "test_toys.py").open("a") as file:
        file.write('\n\nfrom pytest_touchstone import composite\n\ncomposite("mix", {"toys:acc": 1.0})\n')
    run = score(pytester, 40, "first")
    assert run.returncode == 4
    (line,) = run.stderr.strip().splitlines()
    assert not missing(line, "'mix'", "0.5 toys:acc + 0.5 toys:half", "1 toys:acc", "rename")


def test_a_part_of_which_less_is_better_is_refused(pytester: pytest.Pytester) -> None:
    project = make(pytester.path)
    (project / "conftest.py").write_text(DECLARED.replace("half", "error"))
    run = score(pytester, 40, "first")
    assert run.returncode == 4
    assert not missing(run.stderr, "'mix'", "toys:error less is better", "give parts")
