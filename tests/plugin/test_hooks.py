"""Hooks of a run, as a project's conftest implements them: a tracker, and a section of its own on the terminal."""

from __future__ import annotations

import json
import re

import pytest

from pytest_touchstone.reports.ci import markdown_page
from pytest_touchstone.results.summary import load_summary
from tests.support.project import Project

TRACKER = """
import json, pathlib

COUNTS = {"runs": [], "items": [], "checkpoints": [], "ends": []}

def pytest_touchstone_run_started(run):
    COUNTS["runs"].append([run.items, len(run.manifest["checkpoints"]), run.directory.name == run.run_id])

def pytest_touchstone_item_finished(record):
    COUNTS["items"].append([record.checkpoint, record.example, record.status])

def pytest_touchstone_checkpoint_finished(summary):
    COUNTS["checkpoints"].append([result.checkpoint for result in summary.results])

def pytest_touchstone_run_finished(summary):
    COUNTS["ends"].append(len(summary.results))
    pathlib.Path("counts.json").write_text(json.dumps(COUNTS))
    return "tracker: counted"

def pytest_touchstone_terminal_sections(summary):
    return "tracker", f"{len(COUNTS['items'])} items\\nin {len(COUNTS['runs'])} run"
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_tracker_is_told_everything_once(project: Project, workers: str) -> None:
    (project.path / "conftest.py").write_text(TRACKER)
    result = project.run("--checkpoint", "fake:masked", "-n", workers, "--eval-limit", "6")
    assert result.ret == 0
    counts = json.loads((project.path / "counts.json").read_text())
    assert counts["runs"] == [[6, 1, True]]
    assert sorted(counts["items"]) == [["fake-causal", f"sums/{n}", "scored"] for n in range(6)]
    assert (counts["checkpoints"], counts["ends"]) == ([["fake-causal"]], [1])
    result.stdout.fnmatch_lines(["*= benchmarks =*", "tracker", "6 items", "in 1 run", "tracker: counted"])
    (run,) = project.runs
    summary = load_summary(run)
    assert summary.sections == [{"title": "tracker", "text": "6 items\nin 1 run"}]
    for text in (markdown_page(summary), (run / "report.html").read_text()):
        assert re.search("tracker.*6 items.*in 1 run", text, re.DOTALL)


def test_a_checkpoint_is_told_when_its_last_item_is(project: Project) -> None:
    (project.path / "conftest.py").write_text(TRACKER)
    text = (project.path / "test_sums.py").read_text()
    masks = text[: text.index("    right, wrong")] + "    yield FillMask('a [MASK]')\n    return {'acc': 1}\n"
    masks = masks.replace("Loglikelihood", "FillMask").replace('"sums"', '"masks"')
    (project.path / "test_z.py").write_text(masks)
    assert project.run("--checkpoint", "fake:masked").ret == 0
    counts = json.loads((project.path / "counts.json").read_text())
    assert counts["checkpoints"] == [["fake-causal"], ["fake-masked"]]
    assert (len(counts["items"]), counts["ends"]) == (40, [2])


@pytest.mark.parametrize("hook", ["run_started(run)", "item_finished(record)", "run_finished(summary)"])
def test_a_hook_that_fails_costs_one_line_and_no_result(project: Project, hook: str) -> None:
    (project.path / "conftest.py").write_text(
        f"def pytest_touchstone_{hook}:\n    raise ValueError('no tracker')\n"
    )
    result = project.run()
    assert result.ret == 1
    name = hook.partition("(")[0]
    line = f"pytest_touchstone_{name} of conftest.py failed: ValueError: no tracker"
    assert str(result.stdout).replace("\n", " ").count(line) >= 1
    assert len(project.summary["results"]) == 1
    assert len(project.records) == 20


def test_a_key_in_a_section_is_in_no_file(project: Project) -> None:
    key = f"hf_{'aB3' * 12}"
    (project.path / "conftest.py").write_text(
        f"def pytest_touchstone_terminal_sections(summary):\n    return 'title', 'with {key}'\n"
    )
    assert project.run().ret == 0
    (run,) = project.runs
    assert [path for path in run.rglob("*") if path.is_file() and key in path.read_text()] == []
    assert load_summary(run).sections[0]["text"].startswith("with ")


def test_a_misspelt_hook_is_refused_by_pytest(project: Project) -> None:
    (project.path / "conftest.py").write_text("def pytest_touchstone_run_begun(run): pass\n")
    result = project.run()
    assert result.ret != 0
    assert "unknown hook 'pytest_touchstone_run_begun'" in str(result.stdout) + str(result.stderr)


def test_a_section_without_a_text_is_told_and_costs_no_result(project: Project) -> None:
    (project.path / "conftest.py").write_text(
        "def pytest_touchstone_terminal_sections(summary):\n    return 'title', 3\n"
    )
    result = project.run()
    assert result.ret == 1
    assert "pytest_touchstone_terminal_sections: ('title', 3) is no title with a text" in str(result.stdout)
    assert load_summary(*project.runs).sections == []
