"""``fewshot=lm-eval``: each item has the examples that it has in the whole run, and results say how they were
drawn."""

from __future__ import annotations

from typing import Any

from tests.support.mistakes import refused

Project = Any

AS_LM_EVAL = ("--eval-shots", "3", "--eval-set", "fewshot=lm-eval")


def declared(project: Project) -> None:
    """Let the benchmark name the other harness's draw."""
    path = project.path / "test_sums.py"
    text = path.read_text(encoding="utf-8").replace("import Log", "import LmEval, Log")
    path.write_text(text.replace('row["q"])', 'row["q"], lm_eval=LmEval())'), encoding="utf-8")


def scores(project: Project, *arguments: str) -> dict[str, dict[str, float]]:
    assert project.run(*arguments).ret == 0
    found: dict[str, dict[str, float]] = project.scores()
    return found


def test_a_selected_item_is_asked_as_in_the_whole_run(project: Project) -> None:
    declared(project)
    ours = scores(project, "--eval-shots", "3")
    whole = scores(project, *AS_LM_EVAL)
    assert whole.keys() == ours.keys()
    assert whole != ours
    for selection in (("-k", "sums/17"), ("-n", "1", "--eval-limit", "3")):
        part = scores(project, *AS_LM_EVAL, "--eval-no-cache", *selection)
        assert part == {name: whole[name] for name in part} != {}


def test_the_label_the_manifest_and_the_cache_know_the_draw(project: Project) -> None:
    declared(project)
    assert project.run("--eval-shots", "3").ret == 0
    result = project.run(*AS_LM_EVAL)
    result.stdout.fnmatch_lines(["*sums 3-shot as lm-eval*"])
    assert "best so far" not in str(result.stdout)
    first, second = project.runs
    assert not (second / "details" / "reuse.json").exists()
    assert (first / "run.json").read_text(encoding="utf-8").count('"fewshot": "touchstone"') == 1
    assert (second / "run.json").read_text(encoding="utf-8").count('"fewshot": "lm-eval"') == 1


def test_a_benchmark_without_the_other_harnesss_draw_is_refused(project: Project) -> None:
    refused(project.run(*AS_LM_EVAL, apart=True), "sums: how lm-eval draws", "--eval-set fewshot=touchstone")
    assert project.run("--eval-set", "fewshot=lm-eval").ret == 0
