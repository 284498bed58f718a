"""Runs of an MLflow experiment as checkpoints with results: ours, and those of other scripts."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.compare.mlflow import IDENTITY, candidates_of
from pytest_touchstone.reports.trackers.payload import identity, tracked_runs
from pytest_touchstone.results.store_entry import results_from_records
from pytest_touchstone.results.summary import Summary
from tests.support.lines import missing
from tests.support.summaries import sample


def in_mlflow(summary: Summary) -> list[Any]:
    """The runs as MLflow gives them back, in no order of ours."""
    return [
        run(one.name, one.params, {point.name: point.value for point in one.points}, tags, kind=one.kind)
        for one in reversed(tracked_runs(summary, {}, {}))
        for tags in [{**one.tags, IDENTITY: identity(summary)}]
    ]


def run(
    name: str,
    params: Any,
    metrics: dict[str, float],
    tags: dict[str, str] | None = None,
    *,
    kind: str = "",
    status: str = "FINISHED",
) -> Any:
    return SimpleNamespace(
        info=SimpleNamespace(run_name=name, run_id=f"id of {name} {kind}", status=status, start_time=0),
        data=SimpleNamespace(params=dict(params), metrics=metrics, tags=tags or {}),
    )


def made(**more: Any) -> Summary:
    summary = sample(2)
    rows = [{**row, "series": "runs/a", "val_loss": 1.5} for row in summary.checkpoints]
    return dataclasses.replace(summary, checkpoints=rows, **more)


def test_our_results_come_back_as_they_were() -> None:
    summary = made()
    found = candidates_of(in_mlflow(summary), "e")
    stored = {(one.checkpoint, one.benchmark): one for one, _ in results_from_records(summary, ())}
    assert {(one.name, name) for one in found for name in one.entries} == stored.keys()
    for one in found:
        assert (one.about["series"], one.about["step"]) == ("runs/a", int(one.name.partition("-")[2]))
        for name, entry in one.entries.items():
            was = stored[one.name, name]
            for field in (
                "metrics",
                "conditions",
                "primary",
                "scored",
                "faults",
                "of",
                "mark",
                "fingerprint",
            ):
                assert getattr(entry.saved, field) == getattr(was, field)
            assert (entry.saved.run_id, entry.saved.composites) == (was.run_id, was.composites)
    known = {(one["checkpoint"], one["name"]): one["value"] for one in summary.composites}
    assert {
        (one.name, name): metric.value for one in found for name, metric in one.composites.items()
    } == known


def test_what_is_not_valid_comes_back_with_its_reason() -> None:
    summary = made()
    results = [dataclasses.replace(one, invalid="9 of 24 cut off") for one in summary.results]
    found = candidates_of(in_mlflow(dataclasses.replace(summary, results=results)), "e")
    saved = [entry.saved for one in found for entry in one.entries.values()]
    assert all(one.invalid == "9 of 24 cut off" for one in saved if not one.faults)


def test_runs_of_another_script_are_read_by_their_parameters_and_metrics() -> None:
    script = [
        run(
            f"eval_{dataset}_checkpoint_best.pt",
            {
                "checkpoint_path": f"storage/checkpoints/{pipeline}/checkpoint_best.pt",
                "dataset": dataset,
                "num_samples": "20",
                "temperature": "0.2",
                "checkpoint_epoch": "4",
                "checkpoint_val_loss": "1.25",
            },
            {"pass_at_1": 0.25, "pass_at_10": 0.5},
            kind=pipeline,
        )
        for pipeline in ("baseline", "critic")
        for dataset in ("humaneval", "mbpp")
    ]
    found = candidates_of(script, "theirs", {"humaneval": 164})
    assert [(one.about["series"], sorted(one.entries)) for one in found] == [
        ("storage/checkpoints/baseline", ["humaneval", "mbpp"]),
        ("storage/checkpoints/critic", ["humaneval", "mbpp"]),
    ]
    saved = found[0].entries["humaneval"].saved
    assert (saved.primary, saved.metrics["pass@10"].value, saved.metrics["pass@1"].n) == ("pass@1", 0.5, 164)
    assert (found[0].about["epoch"], found[0].about["val_loss"]) == (4.0, 1.25)
    assert found[0].entries["mbpp"].saved.metrics["pass@1"].n == 0


@pytest.mark.parametrize("name", ["checkpoint_path", "checkpoint"])
def test_a_script_may_call_the_path_a_checkpoint_and_its_newest_run_counts(name: str) -> None:
    params = {name: "storage/critic/checkpoint_best.pt", "dataset": "humaneval"}
    again = run("again", params, {"pass_at_1": 0.5})
    again.info.start_time = 1
    (found,) = candidates_of([again, run("first", params, {"pass_at_1": 0.25})], "e")
    assert (found.name, found.about["series"]) == ("checkpoint_best.pt", "storage/critic")
    assert found.entries["humaneval"].saved.metrics["pass@1"].value == 0.5
    (note,) = found.notes
    assert not missing(note, "1 run", "newer")


def test_a_run_that_goes_on_is_left_out_and_named_and_others_are_no_results() -> None:
    params = {"checkpoint_path": "a/b", "dataset": "humaneval"}
    runs = [
        run("done", params, {"pass_at_1": 0.5}),
        run("going on", params, {"pass_at_1": 0.5}, status="RUNNING"),
        run("a training", {"learning_rate": "1"}, {"loss": 1.0}),
    ]
    (found,) = candidates_of(runs, "e")
    (note,) = found.notes
    assert not missing(note, "1 run", "not ended")
