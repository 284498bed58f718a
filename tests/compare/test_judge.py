"""Two results become a verdict by the items that both have; chance, choice and identity are allowed for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.judge import (
    IDENTICAL,
    Weighed,
    columns,
    compare,
    compare_composite,
    item_differences,
    judge,
    score_name,
)
from pytest_touchstone.core.errors import GateError
from tests.support.entries import entry, right
from tests.support.known import known

SCORES = st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=40)


def test_a_real_drop_is_worse_and_a_real_gain_better() -> None:
    old, new = entry(right(300, 400)), entry(right(200, 400), checkpoint="new")
    assert judge({"b": compare(new, [old])})["b"].verdict.kind == "worse"
    assert judge({"b": compare(old, [new])})["b"].verdict.kind == "better"


def test_the_primary_metric_is_compared_unless_another_is_named() -> None:
    old = entry({"acc": right(5, 10), "extra": right(2, 10)})
    new = entry({"acc": right(5, 10), "extra": right(9, 10)}, checkpoint="new")
    assert compare(new, [old]).comparison.difference == 0
    assert compare(new, [old], "extra").comparison.difference == pytest.approx(0.7)


def test_a_perplexity_is_compared_by_its_log_probabilities() -> None:
    how = {"perplexity": {"by": "perplexity", "of": "logprob"}}
    old = entry({"logprob": [-1.0, -2.0, -3.0]}, aggregate=how)
    new = entry({"logprob": [-1.5, -2.5, -3.5]}, checkpoint="new", aggregate=how)
    assert score_name(new.saved, "perplexity") == "logprob"
    assert compare(new, [old], "perplexity").comparison.difference == pytest.approx(-0.5)


def test_a_metric_that_there_is_not_is_named_with_those_there_are() -> None:
    one = entry({"acc": right(1, 2), "extra": right(1, 2)})
    with pytest.raises(GateError, match=r"b has no metric 'f1'; it has acc, extra"):
        compare(one, [one], "f1")


def test_a_mean_over_groups_is_refused_with_what_to_use() -> None:
    one = entry({"acc": right(1, 2), "acc_macro": right(1, 2)})
    with pytest.raises(GateError, match=r"mean over groups.* use acc"):
        score_name(one.saved, "acc_macro")


def test_only_items_that_both_have_are_compared_and_the_others_are_named() -> None:
    old = entry([1, 1, 0, 1], examples=["a", "b", "c", "d"], rows=["1", "2", "3", "4"])
    new = entry([0, 1, 1, 1], examples=["b", "c", "d", "e"], rows=["2", "3", "other", "5"])
    found = item_differences(new.items, old.items, "acc")
    assert tuple(found) == (("a",), ("e",), ("d",), 2)
    assert found.text() == (
        "1 item missing here: a; 1 item not in the baseline: e; 1 item with another row: d"
    )
    assert columns(new.items, [old.items], "acc") == (["b", "c"], [[1.0, 0.0]], [0.0, 1.0], None)
    assert not item_differences(new.items, new.items, "acc")


def test_of_many_items_three_are_named() -> None:
    found = item_differences(entry([1.0]).items, entry(right(5, 9)).items, "acc")
    assert found.text() == "8 items missing here: b/0001, b/0002, b/0003 and 5 more"


def test_an_item_without_the_score_is_no_item_of_the_metric() -> None:
    old, new = entry([1, None, 0]), entry([1, 1, None], checkpoint="new")
    assert item_differences(new.items, old.items, "acc") == (("b/0002",), ("b/0001",), (), 1)
    assert compare(new, [old]).comparison.n == 1


def test_without_common_items_nothing_can_be_told() -> None:
    old, new = entry([1.0], examples=["a"]), entry([1.0], examples=["b"])
    judged = judge({"b": compare(new, [old])})["b"]
    assert judged.verdict.kind == "inconclusive"
    assert judged.verdict.why == "no items in common"
    assert judged.compared.measured is None


def test_a_checkpoint_compared_with_itself_is_not_worse_however_few_the_items() -> None:
    old, new = entry(right(3, 5)), entry(right(3, 5), run_id="again")
    others = {"twice": compare(new, [old]), "b": compare(entry(right(3, 5), checkpoint="x"), [old])}
    judged = judge(others)
    assert (judged["twice"].verdict.kind, judged["twice"].verdict.why) == ("not worse", IDENTICAL)
    assert judged["b"].verdict.kind == "inconclusive"
    assert judged["b"].verdict.family == 1


def test_the_best_of_several_is_compared_with_and_shrunk() -> None:
    draw = random.Random(3)
    runs = [
        entry([float(draw.random() < 0.5) for _ in range(300)], checkpoint=f"run{place}")
        for place in range(8)
    ]
    new = entry([float(draw.random() < 0.5) for _ in range(300)], checkpoint="new")
    found = compare(new, runs)
    values = [sum(map(known, one.items.scores["acc"])) / 300 for one in runs]
    assert found.measured == max(values) == values[found.chosen]
    assert found.shrunk is not None
    assert found.shrunk < found.measured
    assert found.runs == 8
    assert found.candidates > 1
    assert found.comparison.baseline == pytest.approx(found.shrunk)
    assert found.as_measured.baseline == pytest.approx(found.measured)


def test_all_benchmarks_of_a_checkpoint_are_one_family() -> None:
    old, new = entry(right(30, 100)), entry(right(22, 100), checkpoint="new")
    same = entry(right(30, 100), checkpoint="other")
    one = judge({"b": compare(new, [old])})["b"].verdict
    many = judge({"b": compare(new, [old]), **{f"c{n}": compare(same, [old]) for n in range(9)}})["b"].verdict
    assert (one.kind, one.family) == ("worse", 1)
    assert (many.kind, many.family) == ("inconclusive", 10)


def test_margins_of_benchmarks_that_are_not_compared_are_no_fault() -> None:
    old, new = entry(right(300, 400)), entry(right(200, 400), checkpoint="new")
    judged = judge({"b": compare(new, [old])}, margins={"b": 0.3, "elsewhere": 0.1})
    assert judged["b"].verdict.kind == "not worse"
    assert judged["b"].verdict.margin == 0.3


def test_a_composite_is_compared_over_the_items_of_its_benchmarks() -> None:
    def parts(first: int, second: int, checkpoint: str) -> list[BenchmarkScores]:
        return [
            entry({"x": right(first, 200), "y": right(first, 200)}, checkpoint=checkpoint, benchmark="p"),
            entry({"z": right(second, 100)}, checkpoint=checkpoint, benchmark="q"),
        ]

    (old_p, old_q), (best_p, best_q), (new_p, new_q) = (
        parts(20, 50, "a"),
        parts(100, 50, "b"),
        parts(40, 50, "c"),
    )
    weighed = [
        Weighed(0.4, "x", new_p, [old_p, best_p]),
        Weighed(0.3, "y", new_p, [old_p, best_p]),
        Weighed(0.3, "z", new_q, [old_q, best_q]),
    ]
    found = compare_composite("score", weighed)
    assert found.chosen == 1
    assert found.comparison.difference == pytest.approx(0.7 * (0.2 - 0.5))
    assert judge({"score": found})["score"].verdict.kind == "worse"


@settings(max_examples=30, deadline=None)
@given(SCORES, st.randoms())
def test_the_order_of_the_items_changes_nothing(scores: list[float], draw: random.Random) -> None:
    other = [float(draw.random() < 0.5) for _ in scores]
    names = [f"i{place}" for place in range(len(scores))]
    order = list(range(len(scores)))
    draw.shuffle(order)
    plain = compare(entry(other, examples=names), [entry(scores, examples=names)])
    mixed = entry([other[place] for place in order], examples=[names[place] for place in order])
    assert compare(mixed, [entry(scores, examples=names)]).comparison == plain.comparison
