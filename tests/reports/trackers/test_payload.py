"""The content of a tracker, of a made-up run."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.mlflow import tracker_name
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.reports.trackers.payload import (
    ResultFiles,
    TrackedRun,
    identity,
    tracked_runs,
    why_not,
)
from pytest_touchstone.results.summary import Summary, result_rows, whole_results
from tests.support.summaries import sample


def series_of(checkpoints: int, **more: Any) -> Summary:
    """A run of the checkpoints of one training."""
    run = sample(checkpoints, faults=False)
    rows = [{**row, "series": "runs/a", "step": row["global_step"], **more} for row in run.checkpoints]
    return dataclasses.replace(run, checkpoints=rows)


def by_name(runs: list[TrackedRun]) -> dict[str, TrackedRun]:
    return {one.name: one for one in runs}


def values(run: TrackedRun) -> dict[str, float]:
    return {point.name: point.value for point in run.points}


def test_every_number_of_the_run_is_sent_once_with_its_interval() -> None:
    run = series_of(2)
    sent = by_name(tracked_runs(run, {}, {}))
    rows = result_rows(run)
    assert len(rows) > 20
    for row in rows:
        found = values(sent[f"eval_{row.benchmark}_{row.checkpoint}"])
        name = tracker_name(row.benchmark if row.metric == COMPOSITE else row.metric)
        name = name if row.group is None else f"{row.group}/{name}"
        assert (found[name], found[f"interval/{name}/low"]) == (row.value, row.low)
        assert found[f"interval/{name}/high"] == row.high


def test_a_result_has_the_parameters_of_its_checkpoint_and_how_texts_were_asked_for() -> None:
    run = series_of(1, val_loss=1.25)
    place = ("checkpoint-100", "winogrande")
    asked = {"num_samples": 20, "temperature": 0.2, "max_new_tokens": 512}
    params = by_name(tracked_runs(run, {}, {place: ResultFiles({}, asked)}))[
        "eval_winogrande_checkpoint-100"
    ].params
    assert {name: params[name] for name in ("checkpoint_path", "dataset", "shots")} == {
        "checkpoint_path": "runs/checkpoint-100",
        "dataset": "winogrande",
        "shots": 5,
    }
    assert [params[name] for name in ("num_samples", "temperature", "max_new_tokens")] == [20, 0.2, 512]
    assert [params[name] for name in ("checkpoint_epoch", "checkpoint_val_loss")] == [1.0, 1.25]


def test_the_limit_of_new_tokens_is_the_one_that_was_used() -> None:
    run = series_of(1)
    run.manifest.setdefault("settings", {})["max_new_tokens"] = 64
    place = ("checkpoint-100", "winogrande")
    asked = {"num_samples": 1, "temperature": 0.0, "max_new_tokens": 512}
    found = by_name(tracked_runs(run, {}, {place: ResultFiles({}, asked)}))[
        "eval_winogrande_checkpoint-100"
    ].params
    assert found["max_new_tokens"] == 64


def test_where_no_text_was_asked_for_nothing_is_said_of_samples() -> None:
    run = series_of(1)
    place = ("checkpoint-100", "winogrande")
    params = by_name(tracked_runs(run, {}, {place: ResultFiles({}, {})}))[
        "eval_winogrande_checkpoint-100"
    ].params
    assert not {"num_samples", "samples", "temperature", "max_new_tokens"} & params.keys()


def test_a_series_is_a_run_with_every_metric_at_every_step() -> None:
    run = series_of(3)
    curve = by_name(tracked_runs(run, {}, {}))["series_a"]
    drawn = [(point.step, point.value) for point in curve.points if point.name == "winogrande/acc"]
    measured = [one.metrics["acc"].value for one in whole_results(run) if one.name == "winogrande"]
    assert drawn == list(zip((100, 200, 300), measured, strict=True))
    assert len([point for point in curve.points if point.name == "score_wiki"]) == 3


def test_trainings_in_folders_of_one_name_are_told_apart_as_in_a_study() -> None:
    run = sample(4, faults=False)
    rows = [
        {**row, "series": f"runs/{'ab'[place // 2]}/checkpoints", "step": row["global_step"]}
        for place, row in enumerate(run.checkpoints)
    ]
    curves = [
        one.name
        for one in tracked_runs(dataclasses.replace(run, checkpoints=rows), {}, {})
        if one.kind == "series"
    ]
    assert curves == ["series_a/checkpoints", "series_b/checkpoints"]


def test_a_length_that_a_server_has_not_said_is_no_parameter() -> None:
    served = {"limit": None, "cut": False}
    for more, length in (({}, 512), ({"served": served}, None), ({"served": {**served, "limit": 512}}, 512)):
        sent = by_name(tracked_runs(series_of(1, **more), {}, {}))["eval_winogrande_checkpoint-100"]
        assert sent.params.get("seq_len") == length


def test_one_checkpoint_alone_is_no_curve() -> None:
    assert not [one for one in tracked_runs(series_of(1), {}, {}) if one.kind == "series"]


def test_fractions_of_an_epoch_are_steps_in_thousandths_and_a_tag_says_so() -> None:
    run = series_of(2)
    rows = [
        {**row, "global_step": None, "step": place, "epoch": place}
        for row, place in zip(run.checkpoints, (0.5, 1.0), strict=True)
    ]
    curve = by_name(tracked_runs(dataclasses.replace(run, checkpoints=rows), {}, {}))["series_a"]
    assert {point.step for point in curve.points} == {500, 1000}
    assert curve.tags["step_unit"] == "thousandths of an epoch"


def test_an_invalid_result_is_sent_and_tagged_and_in_a_curve_has_a_name_of_its_own() -> None:
    run = series_of(2)
    results = [
        dataclasses.replace(one, invalid="12 cut off")
        if (one.name, one.checkpoint) == ("winogrande", "checkpoint-200")
        else one
        for one in run.results
    ]
    runs = tracked_runs(dataclasses.replace(run, results=results), {}, {})
    sent = by_name(runs)
    wrong = sent["eval_winogrande_checkpoint-200"]
    assert (wrong.tags["valid"], wrong.tags["why_not_valid"]) == ("false", "12 cut off")
    assert "acc" in values(wrong)
    assert sent["eval_winogrande_checkpoint-100"].tags["valid"] == "true"
    steps = {point.name: point.step for point in sent["series_a"].points if "winogrande/acc" in point.name}
    assert steps == {"winogrande/acc": 100, "not valid/winogrande/acc": 200}
    assert runs[0].why_not == "winogrande of checkpoint-200: 12 cut off"
    assert sent["series_a"].why_not is not None


def test_faults_and_checkpoints_that_failed_to_load_are_told() -> None:
    run = sample(1)
    assert any(one.faults for one in whole_results(run))
    failed = [{"name": "b", "path": "runs/b", "message": "no weights"}]
    parent, *_ = tracked_runs(dataclasses.replace(run, failed_to_load=failed), {}, {})
    assert parent.why_not is not None
    assert "b failed to load" in parent.why_not
    assert all(f"{one.name} of" in parent.why_not for one in whole_results(run) if why_not(one))


def test_a_metric_without_a_value_is_no_number_but_a_tag() -> None:
    run = series_of(1)
    results = [
        dataclasses.replace(
            one,
            metrics={
                name: dataclasses.replace(metric, value=None, why="nothing")
                for name, metric in one.metrics.items()
            },
        )
        for one in run.results
    ]
    sent = by_name(tracked_runs(dataclasses.replace(run, results=results), {}, {}))
    found = sent["eval_winogrande_checkpoint-100"]
    assert "acc" not in values(found)
    assert found.tags["undefined"] == "winogrande acc: nothing"


def test_two_runs_with_one_id_are_two_runs() -> None:
    run = sample(1)
    later = dataclasses.replace(run, manifest={**run.manifest, "began": 5.0})
    assert identity(run) != identity(later)


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_are_what_trackers_take_and_no_two_become_one(name: str, other: str) -> None:
    found = tracker_name(name)
    assert re.fullmatch(r"[\w.\- ]+", found)  # the rule of mlflow.utils.validation, without the slash
    assert posixpath.normpath(f"a/{found}/b") == f"a/{found}/b"
    assert name == other or "_at_" in found or found != tracker_name(other)


def test_known_metrics_have_readable_names() -> None:
    assert [tracker_name(name) for name in ("pass@1", "acc_norm", "real@5_strict")] == [
        "pass_at_1",
        "acc_norm",
        "real_at_5_strict",
    ]
