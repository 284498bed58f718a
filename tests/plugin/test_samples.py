"""Several samples of a task: how they are drawn follows from the options and the example alone."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.project import Project

BENCHMARK = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="draws", version=1, data="sums/test", asks=Generate, primary="share"{more})
def test_draws(example, fewshot):
    '''How many of the samples have an even number of characters.'''
    answer = yield Generate(example["q"], max_new_tokens=20, **fewshot.sampling.arguments())
    return {{"share": sum(len(one.text) % 2 == 0 for one in answer.samples) / len(answer.samples)}}
"""


ANSWERS = """
from pytest_touchstone import Generate, Graded, benchmark


@benchmark(
    name="reads", version=1, data="sums/test", asks=Generate, most_unusable=1.0, primary="right", metrics=("right",)
)
def test_reads(example, fewshot):
    '''Whether the answer has an even length.'''
    answer = yield fewshot.generate(example["q"], max_new_tokens=6)
    length = len(answer.text.strip())
    return Graded({{"right": float(length % 2 == 0)}}, not length, {{"length": str(length) if length else None}})
"""


@pytest.fixture(autouse=True)
def draws(project: Project) -> None:
    write(project)


def reads(project: Project) -> None:
    """A benchmark that knows nothing of samples."""
    (project.path / "test_sums.py").write_text(ANSWERS.format(), encoding="utf-8")


SEVERAL = ("--eval-samples", "4", "--eval-temperature", "0.8")


def write(project: Project, more: str = "") -> None:
    (project.path / "test_sums.py").write_text(BENCHMARK.format(more=more), encoding="utf-8")


def asked(project: Project) -> dict[str, dict[str, Any]]:
    """What was asked of each example."""
    return {example: record.exchanges[0]["request"] for example, record in project.records.items()}


def test_one_greedy_sample_is_what_is_asked_by_default(project: Project) -> None:
    assert project.run().ret == 0
    for request in asked(project).values():
        assert (request["samples"], request["temperature"], request["top_p"]) == (1, 0.0, 1.0)


def test_several_samples_are_drawn_and_the_manifest_says_how(project: Project) -> None:
    assert project.run("--eval-samples", "4").ret == 0
    requests = asked(project)
    for request in requests.values():
        assert (request["samples"], request["temperature"], request["top_p"]) == (4, 0.2, 0.95)
    assert len({request["seed"] for request in requests.values()}) == 20
    (folder,) = project.runs
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["samples"], settings["temperature"], settings["top_p"]) == (4, 0.2, 0.95)


def test_what_is_drawn_does_not_depend_on_what_else_is_selected(project: Project) -> None:
    project.run("--eval-samples", "4", "--eval-temperature", "0.8")
    whole = project.scores()
    project.run(
        "--eval-samples", "4", "--eval-temperature", "0.8", "--eval-set", "batch_items=3", "-k", "17 or 4"
    )
    some = project.scores()
    assert some == {example: whole[example] for example in some}
    assert len(some) == 3
    project.run("--eval-samples", "4", "--eval-temperature", "0.8", "--eval-seed", "5")
    assert project.scores() != whole


def test_samples_are_scored_again_as_they_were_drawn(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run("--eval-samples", "4", "--eval-set", "top_p=0.5", "--eval-seed", "5")
    (folder,) = project.runs
    capsys.readouterr()
    assert main(["score", str(folder), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["items"], found["changes"], found["unscored"]) == (20, [], [])


def test_of_more_rows_than_are_wanted_a_part_is_drawn_and_keeps_its_names(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run()
    whole = project.scores()
    write(project, ", most_rows=6")
    project.run()
    (folder,) = project.runs
    capsys.readouterr()
    assert main(["score", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unscored"] == []
    some = project.scores()
    assert len(some) == 6
    assert some == {example: whole[example] for example in some}
    project.run("--eval-seed", "2")
    assert set(project.scores()) != set(some)


# A benchmark that scores one answer


def test_without_the_option_such_a_benchmark_is_asked_for_one_greedy_text(project: Project) -> None:
    reads(project)
    assert project.run().ret == 0
    for record in project.records.values():
        (exchange,) = record.exchanges
        request = exchange["request"]
        drawn = [request[name] for name in ("samples", "temperature", "top_p", "seed")]
        assert (drawn, list(record.scores)) == ([1, 0.0, 1.0, 0], ["right"])


def test_all_its_answers_are_scored_each_by_the_benchmark_and_reported(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    reads(project)
    done = project.run(*SEVERAL)
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*reads avg@4 *right * 20*", "*maj@4 *20", "*pass@4 *20"])
    for record in project.records.values():
        (exchange,) = record.exchanges
        lengths = [len(one["text"].strip()) for one in exchange["answer"]["samples"]]
        votes = Counter(filter(None, lengths)).most_common()
        most = [length for length, number in votes if number == votes[0][1]]
        right = [length % 2 == 0 for length in lengths]
        assert (len(lengths), record.outputs, record.no_answer) == (4, 4, lengths.count(0))
        assert record.scores["right"] == record.scores["avg@4"] == statistics.mean(right)
        assert record.scores["maj@4"] == pytest.approx(statistics.mean(length % 2 == 0 for length in most))
        assert (record.scores["pass@1"], record.scores["pass@4"]) == (statistics.mean(right), max(right))
    (result,) = project.summary["results"]
    assert (result["metrics"]["right"]["n"], result["outputs"]) == (20, 80)
    (folder,) = project.runs
    capsys.readouterr()
    assert main(["score", str(folder), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["items"], again["changes"], again["unscored"], again["added"]) == (20, [], [], {})
    assert main(["items", str(folder), "-n", "1"]) == 0
    assert "votes" in capsys.readouterr().out


def test_results_of_one_answer_and_of_several_are_asked_otherwise(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    reads(project)
    assert project.run("--eval-run-id", "one").ret == 0
    assert project.run("--eval-run-id", "several", *SEVERAL).ret == 0
    capsys.readouterr()
    main(["compare", str(project.path / "results/one"), str(project.path / "results/several")])
    assert "samples" in capsys.readouterr().out


def test_a_gate_may_go_by_the_majority(project: Project) -> None:
    reads(project)
    assert project.run("--eval-run-id", "one", *SEVERAL).ret == 0
    done = project.run("--eval-run-id", "two", *SEVERAL, "--eval-set", "gate_metric=maj@4", "--gate")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*maj@4*"])


def test_a_run_without_texts_says_that_samples_have_no_effect(project: Project) -> None:
    project.write()
    done = project.run("--eval-samples", "4")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["samples*--eval-samples 4 has no effect*"])


def test_of_a_benchmark_that_asserts_the_score_is_the_share_of_answers_that_hold(project: Project) -> None:
    text = ANSWERS.format().replace(', primary="right", metrics=("right",)', "")
    before, mark, _ = text.partition("    return ")
    assert mark
    (project.path / "test_sums.py").write_text(f"{before}    assert length % 2 == 0\n", encoding="utf-8")
    project.run(*SEVERAL).assert_outcomes(passed=20)
    for record in project.records.values():
        failed = round(4 * (1 - record.scores["passed"]))
        message = record.message or ""
        assert message.startswith(f"{failed} of 4 samples: assert ") if failed else not message
    assert len({record.scores["passed"] for record in project.records.values()}) > 2


@pytest.mark.slow
def test_answers_of_a_model_are_the_same_in_any_batch_in_two_processes_and_after_a_stop(
    project: Project, whole: Path
) -> None:
    reads(project)

    def found(name: str, *options: str, apart: bool = False) -> dict[str, Any]:
        done = project.run(
            *("--eval-run-id", name, *SEVERAL, "--eval-device", "cpu", *options),
            checkpoint=str(whole),
            apart=apart,
        )
        assert done.ret == 0
        records = latest_records(read_journal(project.path / "results" / name))
        return {key: (one.scores, one.exchanges) for key, one in records.items()}

    part = found("part", "-k", "3 or 11", "--eval-set", "batch_items=1")
    resumed = found("resumed")
    summary = json.loads((project.path / "results/resumed/summary.json").read_text(encoding="utf-8"))
    assert summary["results"][0]["reused"] == len(part) == 3
    right = found("right", "--eval-no-cache")
    assert right == resumed
    assert part.items() <= right.items()
    assert found("small", "--eval-no-cache", "--eval-set", "batch_items=3", "--eval-batch", "2") == right
    assert found("workers", "--eval-no-cache", "-n", "2", apart=True) == right
    assert found("seed", "--eval-no-cache", "--eval-seed", "5") != right
