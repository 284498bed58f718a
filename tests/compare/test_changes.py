"""The change of every metric against the best so far: like with like, larger is better but for a perplexity."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_touchstone.compare import changes
from pytest_touchstone.compare.baselines import comparable_results
from pytest_touchstone.compare.candidate import ResultSource, published, result_from_totals
from pytest_touchstone.compare.changes import changes_of, composite_of_items
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from tests.support.entries import entry, right


def saved(first: int, fifth: int, checkpoint: str, began: float = 1.0, **more: Any) -> StoredResult:
    columns = {"real@1": right(first, 100), "real@5": right(fifth, 100)}
    return entry(columns, checkpoint=checkpoint, benchmark="real_coref", began=began, **more).saved


NEW = saved(66, 80, "new", 9.0)


def test_every_metric_has_its_own_best_and_the_change_is_in_points() -> None:
    found = changes_of([NEW], [saved(64, 70, "a"), saved(60, 82, "b", 2.0), saved(62, 75, "c", 3.0)])
    assert [(one.metric, round(one.change, 2), one.unit, one.against, one.of) for one in found] == [
        ("real@1", 2.0, "points", "a", 3),
        ("real@5", -2.0, "points", "b", 3),
    ]


@pytest.mark.parametrize(
    "other",
    [
        saved(90, 90, "later", 10.0),
        saved(90, 90, "shots", conditions={"shots": 5}),
        saved(90, 90, "broken", faults=1),
        entry(right(2, 2), checkpoint="trial", benchmark="real_coref", conditions={"limit": 2}).saved,
        entry(right(90, 100), checkpoint="other", benchmark="b").saved,
    ],
    ids=lambda one: one.checkpoint,
)
def test_what_was_not_asked_alike_is_no_best(other: StoredResult) -> None:
    assert changes_of([NEW], [other]) == []


def test_a_composite_is_held_against_the_best_composite_of_one_checkpoint() -> None:
    def lambada(count: int, checkpoint: str, began: float = 1.0) -> StoredResult:
        columns = {"lambada@1": right(count, 100)}
        return entry(columns, checkpoint=checkpoint, benchmark="ko_lambada", began=began).saved

    earlier = [
        saved(60, 80, "a"),
        lambada(50, "a"),
        saved(90, 90, "half"),
        saved(50, 80, "b"),
        lambada(90, "b"),
    ]
    found = changes_of([NEW, lambada(50, "new", 9.0)], earlier)
    (score,) = [one for one in found if one.metric == "composite"]
    assert (score.benchmark, score.against, score.of) == ("score", "b", 2)
    assert score.best == pytest.approx(0.4 * 0.5 + 0.3 * 0.8 + 0.3 * 0.9)
    assert score.value == pytest.approx(0.4 * 0.66 + 0.3 * 0.8 + 0.3 * 0.5)
    assert score.change == pytest.approx(100 * (score.value - score.best))


def test_the_best_of_another_kind_of_model_is_named_as_such() -> None:
    def of(checkpoint: str, **info: Any) -> StoredResult:
        return saved(64, 70, checkpoint, 1.0 if checkpoint == "old" else 9.0, checkpoint_info=info)

    mine = {"model_type": "bert", "parameters": 1_500_000}
    others: dict[str, dict[str, Any]] = {
        "llama, 135M parameters": {"model_type": "llama", "parameters": 134_515_008},
        "bert, 110M parameters": {"model_type": "bert", "parameters": 110_000_000},
        "": {"model_type": "bert", "parameters": 1_600_000},
    }
    for told, info in others.items():
        found = changes_of([of("new", **mine)], [of("old", **info)])
        assert {one.other_model for one in found} == {told}
    assert {one.other_model for one in changes_of([of("new", **mine)], [of("old")])} == {""}


def test_the_best_perplexity_is_the_lowest_and_its_points_are_those_of_the_gate() -> None:
    how = {"ppl": {"by": "perplexity", "of": "logprob"}}

    def of(value: float, checkpoint: str, began: float = 1.0) -> StoredResult:
        one = entry({"logprob": [-1.0]}, checkpoint=checkpoint, aggregate=how, began=began).saved
        metric = dataclasses.replace(one.metrics["ppl"], value=value)
        return dataclasses.replace(one, metrics={"ppl": metric})

    (found,) = changes_of([of(11.0, "new", 9.0)], [of(10.0, "low"), of(12.0, "high")])
    assert (found.against, found.unit) == ("low", "points")
    assert found.change == pytest.approx(-9.53, abs=0.01)


def test_an_earlier_result_that_lacks_a_metric_has_no_best_of_it() -> None:
    earlier = saved(60, 82, "b", 2.0)
    lacking = dataclasses.replace(earlier, metrics={"real@1": earlier.metrics["real@1"]})
    assert [change.metric for change in changes_of([NEW], [lacking])] == ["real@1"]
    assert {change.metric for change in changes_of([NEW], [lacking, earlier])} == {"real@1", "real@5"}


def test_what_is_no_share_changes_in_its_own_unit() -> None:
    def of(value: float, checkpoint: str, began: float = 1.0) -> StoredResult:
        return entry([value], checkpoint=checkpoint, began=began).saved

    (found,) = changes_of([of(75.0, "new", 9.0)], [of(70.5, "old")])
    assert (found.change, found.unit) == (4.5, "")


@pytest.mark.parametrize(("first", "fifth", "last"), [(46, 117, 8), (41, 118, 8), (48, 137, 9)])
def test_a_composite_is_the_same_number_to_the_last_digit_as_in_the_results(
    first: int, fifth: int, last: int
) -> None:
    """0.14575 as one sum and 0.14575000000000002 as another round to different fourth digits."""
    coref = entry({"real@1": right(first, 400), "real@5": right(fifth, 400)}, benchmark="real_coref")
    lambada = entry({"lambada@1": right(last, 200)}, benchmark="ko_lambada_wiki")
    known = {composite.name: composite for composite in composites_of([coref.saved, lambada.saved], ())}
    row = composite_of_items(known["score_wiki"], [(one.saved, one.items) for one in (coref, lambada)])
    assert row is not None
    mine = [dataclasses.replace(one.saved, began=9.0, run_id="new") for one in (coref, lambada)]
    (change,) = [one for one in changes_of(mine, [coref.saved, lambada.saved]) if one.metric == "composite"]
    assert row["value"] == change.value == change.best


def test_a_series_looks_through_the_saved_results_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a checkpoint: with hundreds of both that takes longer than the scoring."""
    looked: list[str] = []

    def noted(new: StoredResult, results: Iterable[StoredResult]) -> list[StoredResult]:
        looked.append(new.benchmark)
        return comparable_results(new, results)

    monkeypatch.setattr(changes, "comparable_results", noted)
    earlier = [saved(60 + place, 70, f"old{place}") for place in range(3)]
    series = [saved(66, 80, f"new{place}", 9.0, run_id="series") for place in range(20)]
    other = saved(66, 80, "shots", 9.0, run_id="series", conditions={"shots": 5})
    found = changes_of([*series, other], [*earlier, saved(50, 50, "five", conditions={"shots": 5})])
    assert looked == ["real_coref"] * 2
    assert len(found) == 2 * len(series) + 2
    assert {(one.against, one.of) for one in found if one.checkpoint == "shots"} == {("five", 1)}
    assert {
        (one.against, one.of) for one in found if one.checkpoint != "shots" and one.metric == "real@1"
    } == {("old2", 3)}


def test_results_of_a_named_file_stand_for_the_best_so_far() -> None:
    metrics = {"real@1": published("real@1", 0.6, n=400), "real@5": published("real@5", 0.7, n=400)}
    named = result_from_totals(
        "real_coref", metrics, primary="real@1", source=ResultSource("f.json", "0"), name="checkpoint-655"
    )
    found = changes_of([NEW], [saved(64, 70, "a")], [named])
    assert [(one.metric, one.best, round(one.change, 2), one.against) for one in found] == [
        ("real@1", 0.6, 6.0, "checkpoint-655"),
        ("real@5", 0.7, 10.0, "checkpoint-655"),
    ]
