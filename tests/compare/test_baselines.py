"""The baseline of a result: the best comparable one, or none and the reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pytest_touchstone.compare.baselines import (
    FIRST_ON_ITEMS,
    BaselineChoice,
    best_per_checkpoint,
    find_baselines,
)
from pytest_touchstone.compare.candidate import BenchmarkScores
from tests.support.entries import entry, right, source
from tests.support.lines import missing


def new(**more: Any) -> BenchmarkScores:
    return entry(right(5, 10), **{"checkpoint": "new", "began": 100.0, **more})


def found(
    mine: BenchmarkScores, *entries: BenchmarkScores, allow: tuple[str, ...] = (), kind: Any = "best"
) -> BaselineChoice:
    return find_baselines(mine, source(*entries, kind=kind), metric="acc", allow=allow)


def test_without_any_result_this_one_is_the_first() -> None:
    assert found(new()).state == "first"
    assert found(new(), entry(right(5, 10), benchmark="other")).state == "first"


def test_every_other_checkpoint_is_a_candidate_once_with_its_best_result() -> None:
    old = [entry(right(n, 10), checkpoint=f"c{n}", began=float(n)) for n in range(1, 4)]
    better = entry(right(9, 10), checkpoint="c1", run_id="better", began=50.0)
    worse = entry(right(2, 10), checkpoint="c3", run_id="worse", began=60.0)
    again = entry(right(2, 10), checkpoint="c2", run_id="again", began=70.0)
    chosen = found(new(), *old, better, worse, again)
    assert chosen.state == "chosen"
    assert [one.saved.run_id for one in chosen.baselines] == ["run-c3", "better", "again"]


def test_of_perplexities_the_lowest_is_the_best() -> None:
    how = {"ppl": {"by": "perplexity", "of": "logprob"}}
    low, high = (entry({"logprob": [-x]}, run_id=f"r{x}", aggregate=how).saved for x in (1.0, 2.0))
    for saved, value in ((low, 2.7), (high, 7.4)):
        saved.metrics["ppl"] = dataclasses.replace(saved.metrics["ppl"], value=value)
    assert best_per_checkpoint([low, high], "ppl") == [low]


def test_a_result_that_its_own_gate_could_not_settle_is_no_reference() -> None:
    first = entry(right(5, 10), checkpoint="first")
    higher = {
        kind: entry(right(8, 10), checkpoint=kind, began=2.0, verdicts={"acc": kind})
        for kind in ("inconclusive", "not worse", "better", "worse", "failed")
    }
    chosen = found(new(), first, *higher.values())
    assert {one.saved.checkpoint for one in chosen.baselines} == {"first", "not worse", "better"}
    assert chosen.notes == ()
    chosen = found(new(), first, higher["inconclusive"])
    assert [one.saved.checkpoint for one in chosen.baselines] == ["first"]
    assert [note.endswith("inconclusive in run-inconclusive") for note in chosen.notes] == [True]
    alone = found(new(), higher["inconclusive"])
    assert [one.saved.checkpoint for one in alone.baselines] == ["inconclusive"]
    by_name = found(new(), higher["inconclusive"], kind="run")
    assert by_name.state == "chosen"


def test_neither_the_run_itself_nor_one_that_began_later_is_a_candidate() -> None:
    mine = new()
    same = entry(right(9, 10), checkpoint="other", run_id=mine.saved.run_id)
    later = entry(right(9, 10), checkpoint="later", began=200.0)
    assert found(mine, same, later).state == "first"


def test_a_checkpoint_may_be_held_against_itself_when_there_is_no_other() -> None:
    chosen = found(new(run_id="second"), new(run_id="first", began=1.0))
    assert [one.saved.run_id for one in chosen.baselines] == ["first"]


def test_made_up_answers_are_no_baseline_for_a_model_but_for_others_made_up() -> None:
    fake: dict[str, Any] = {"checkpoint_info": {"model_type": "fake"}}
    tried = entry(right(9, 10), checkpoint="fake-causal", **fake)
    assert found(new(), tried).state == "first"
    assert found(new(**fake), tried).state == "chosen"


def test_a_second_try_under_other_conditions_is_not_held_against_the_first() -> None:
    other = {"conditions": {"data": "e" * 64}}
    refused = found(
        new(run_id="second", **other), entry(right(9, 10)), new(run_id="one", began=50.0, **other)
    )
    assert refused.state == "refused"
    assert not missing(refused.reason, "sha256 eeeeeeee here, dddddddd there")


@pytest.mark.parametrize(
    ("condition", "value", "words"),
    [
        ("data", "e" * 64, "its rows are others (sha256 eeeeeeee here, dddddddd there)"),
        ("version", 2, "version is 2 here and 1 there"),
        ("shots", 5, "shots is 5 here and 0 there"),
        ("template", "chat", "template is chat here and plain there"),
        ("seed", 7, "seed is 7 here and 1234 there"),
        ("seq_len", 512, "seq_len is 512 here and default there"),
    ],
)
def test_other_conditions_are_refused_by_name_with_both_values_and_allowed_by_name(
    condition: str, value: Any, words: str
) -> None:
    mine, old = new(conditions={condition: value}), entry(right(9, 10))
    refused = found(mine, old)
    assert refused.state == "refused"
    assert words in refused.reason
    assert "old in run-old" in refused.reason
    assert f"--eval-baseline-allow {condition}" in refused.reason
    assert found(mine, old, allow=(condition,)).state == "chosen"


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        ({"few_shot": {"pick": "sample", "sha256": "e" * 64}}, "its few-shot examples are others; "),
        ({"shots": 3, "few_shot": {"sha256": "e" * 64}}, "shots is 3 here and 0 there; "),
        (
            {"data": "e" * 64, "few_shot": {"sha256": "e" * 64}},
            "its rows are others (sha256 eeeeeeee here, dddddddd",
        ),
    ],
)
def test_other_few_shot_examples_are_told_in_words_and_only_where_nothing_else_tells(
    mine: dict[str, Any], said: str
) -> None:
    old = entry(right(9, 10), conditions={"few_shot": {"pick": "sample", "sha256": "d" * 64}})
    refused = found(new(conditions=mine), old)
    assert f"is not comparable: {said}" in refused.reason
    assert "{" not in refused.reason
    assert refused.reason.endswith(f"--eval-baseline-allow {','.join(mine)}")


def test_of_results_that_differ_the_nearest_and_newest_is_named() -> None:
    far = entry(right(1, 10), checkpoint="far", conditions={"shots": 5, "seed": 1})
    near = [
        entry(right(1, 10), checkpoint=f"near{n}", began=float(n), conditions={"seed": 1}) for n in (2, 3)
    ]
    assert not missing(found(new(), *near, far).reason, "near3 in run-near3", "seed is 1234")


def test_what_adapters_are_applied_to_is_no_condition() -> None:
    assert found(new(conditions={"base_model": "a"}), entry(right(1, 10))).state == "chosen"


@pytest.mark.parametrize("flaw", [{"faults": 2}, {"skipped": 1}, {"invalid": "9 of 10 outputs ended"}])
def test_a_result_that_is_not_whole_is_no_baseline(flaw: dict[str, Any]) -> None:
    broken = entry(right(9, 10), **flaw)
    first = found(new(), broken)
    assert first.state == "first"
    assert not missing(first.notes[0], "old in run-old", "not used")
    assert found(new(), broken, kind="run").state == "refused"


def test_a_named_run_must_have_the_same_items() -> None:
    refused = found(new(), entry(right(5, 12)), kind="run")
    assert refused.state == "refused"
    assert not missing(refused.reason, "2 items missing here", "b/0010, b/0011")
    assert "--eval-baseline-allow items" in refused.reason
    rows = [f"row of b/{n:04}" for n in range(9)] + ["changed"]
    other = found(new(), entry(right(5, 10), rows=rows), kind="run")
    assert not missing(other.reason, "1 item", "another row: b/0009")
    assert found(new(), entry(right(8, 8)), kind="run").state == "refused"


def test_a_run_that_lacks_items_of_every_earlier_result_is_compared_with_nothing_and_that_is_said() -> None:
    apart = found(new(), entry(right(5, 12)), entry(right(5, 11), checkpoint="less"))
    assert (apart.state, apart.part) == ("apart", "10 of 12 items")
    assert not missing(apart.reason, "nothing was compared", "old in run-old")
    (note,) = apart.notes
    assert not missing(note, "2 earlier results", "not used", "old in run-old", "12 items", "10")
    rows = [f"row of b/{n:04}" for n in range(9)] + ["changed"]
    assert found(new(), entry(right(5, 10), rows=rows)).state == "apart"


def test_beside_a_baseline_on_its_items_the_run_is_told_which_further_ones_it_lacks() -> None:
    small = entry(right(5, 10), checkpoint="small", began=50.0)
    for whole in (entry(right(5, 12)), entry(right(5, 12), checkpoint="small", run_id="run-old")):
        chosen = found(new(), whole, small)
        assert [one.saved.run_id for one in chosen.baselines] == ["run-small"]
        assert chosen.part == "10 of 12 items"
        assert not missing(chosen.notes[0], "12 items", 10)


def test_results_on_fewer_items_are_not_used_and_that_is_said() -> None:
    chosen = found(new(), entry(right(1, 10)), entry(right(8, 8), checkpoint="small"))
    assert [one.saved.checkpoint for one in chosen.baselines] == ["old"]
    (note,) = chosen.notes
    assert not missing(note, "1 earlier result", "not used", "small in run-small", "8 of 10 items")
    assert not chosen.part


@pytest.mark.parametrize(
    "conditions", [{}, {"limit": 2}, {"limit": 2, "seed": 7}, {"limit": 2, "data": "e" * 64}]
)
@pytest.mark.parametrize("checkpoint", ["new", "old"])
def test_after_a_trial_run_a_whole_one_is_the_first_and_the_next_is_held_against_it(
    conditions: dict[str, Any], checkpoint: str
) -> None:
    trial = entry(right(2, 2), checkpoint=checkpoint, run_id="trial", conditions=conditions)
    first = found(new(), trial)
    assert (first.state, first.reason) == ("first", FIRST_ON_ITEMS)
    (note,) = first.notes
    assert not missing(note, "1 earlier result", "not used", f"{checkpoint} in trial", "2 of 10 items")
    second = found(new(run_id="second"), trial, new(run_id="first", began=50.0))
    assert [one.saved.run_id for one in second.baselines] == ["first"]


def test_a_part_that_was_chosen_by_name_is_a_trial_run_too_whatever_its_rows() -> None:
    """A part of 2 of 400 items of other rows, by -k or node ids."""
    part = entry(right(2, 2), of=400, conditions={"data": "e" * 64})
    assert found(new(), part).state == "first"
    whole = entry(right(2, 2), of=2, conditions={"data": "e" * 64})
    assert found(new(), whole).state == "refused"


def test_a_limit_that_leaves_all_items_is_no_other_condition() -> None:
    assert found(new(conditions={"limit": 400}), entry(right(1, 10))).state == "chosen"
    assert found(new(conditions={"limit": 400}), entry(right(1, 10)), kind="run").state == "chosen"


def test_other_rows_under_another_hash_are_refused_as_before() -> None:
    other = entry(right(8, 8), conditions={"data": "e" * 64})
    assert not missing(found(new(), other).reason, "sha256 dddddddd here, eeeeeeee there")


def test_an_item_that_lost_its_score_is_refused_though_the_items_are_the_same() -> None:
    """Otherwise whoever returns no score for what it cannot do would be compared with nothing."""
    mine = entry([*right(5, 9), None], checkpoint="new", began=100.0)
    assert "1 item missing here: b/0009" in found(mine, entry(right(5, 10))).reason


def test_common_items_are_compared_when_that_is_allowed_and_counted() -> None:
    chosen = found(new(), entry(right(5, 12)), allow=("items",))
    assert chosen.state == "chosen"
    (note,) = chosen.notes
    assert not missing(note, "10 common items", "2 items missing here", "b/0010, b/0011")
    strange = entry(right(5, 10), examples=[f"x{n}" for n in range(10)])
    assert not missing(found(new(), strange, allow=("items",)).reason, "old in run-old", "no item in common")


def test_a_run_is_held_against_whatever_checkpoints_it_has_whenever_it_began() -> None:
    both = [entry(right(n, 10), checkpoint=f"c{n}", run_id="r", began=500.0) for n in (1, 2)]
    assert len(found(new(), *both, kind="run").baselines) == 2


def test_a_run_without_the_benchmark_is_said() -> None:
    absent = find_baselines(
        new(), source(entry(right(1, 2), benchmark="other"), kind="run", name="r7"), metric="acc"
    )
    assert absent.state == "absent"
    assert "r7" in absent.reason


def test_checkpoints_without_a_fingerprint_are_others_of_each_other() -> None:
    other = entry(right(9, 10), began=50.0, conditions={"seed": 7})
    first = new(run_id="first", began=1.0)
    mine, again, apart = (
        dataclasses.replace(one, saved=dataclasses.replace(one.saved, fingerprint=""))
        for one in (new(run_id="second"), first, other)
    )
    assert found(mine, again, apart).state == "refused"  # as with fingerprints: not held against itself
    assert found(mine, again).state == "chosen"


def test_results_without_a_fingerprint_go_by_the_checkpoints_name() -> None:
    plain = [dataclasses.replace(entry([1.0], checkpoint=name).saved, fingerprint="") for name in "ab"]
    assert len(best_per_checkpoint(plain, "acc")) == 2
