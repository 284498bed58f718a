"""Two results become a verdict by the items that both have; chance, choice and identity are allowed for.

All items of several benchmarks as one: what the gate and a comparison of two results say of them.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import (
    IDENTICAL,
    CompositeComponent,
    PooledPart,
    columns,
    compare,
    compare_composite,
    compute_verdicts,
    item_differences,
    pool,
    score_name,
)
from pytest_touchstone.compare.gate.config import GateConfig, check_plan, gate_config_of
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult, gate_json, lines_from_json
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.statistics.paired import compare_flips
from tests.support.compared import ran
from tests.support.entries import entry, right, source
from tests.support.known import known
from tests.support.lines import missing

SCORES = st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=40)


def test_a_real_drop_is_worse_and_a_real_gain_better() -> None:
    old, new = entry(right(300, 400)), entry(right(200, 400), checkpoint="new")
    assert compute_verdicts({"b": compare(new, [old])})["b"].comparison.verdict == "worse"
    assert compute_verdicts({"b": compare(old, [new])})["b"].comparison.verdict == "better"


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
    with pytest.raises(GateError, match=r"^b .*'f1'; .*acc, extra"):
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
    assert not missing(found.text(), "8 items missing here", "b/0001, b/0002, b/0003", "5 more")


def test_an_item_without_the_score_is_no_item_of_the_metric() -> None:
    old, new = entry([1, None, 0]), entry([1, 1, None], checkpoint="new")
    assert item_differences(new.items, old.items, "acc") == (("b/0002",), ("b/0001",), (), 1)
    assert compare(new, [old]).comparison.n == 1


def test_without_common_items_nothing_can_be_told() -> None:
    old, new = entry([1.0], examples=["a"]), entry([1.0], examples=["b"])
    judged = compute_verdicts({"b": compare(new, [old])})["b"]
    assert judged.comparison.verdict == "inconclusive"
    assert judged.comparison.why == "no items in common"
    assert judged.as_measured.baseline is None


def test_a_checkpoint_compared_with_itself_is_not_worse_however_few_the_items() -> None:
    old, new = entry(right(3, 5)), entry(right(3, 5), run_id="again")
    others = {"twice": compare(new, [old]), "b": compare(entry(right(3, 5), checkpoint="x"), [old])}
    judged = compute_verdicts(others)
    assert (judged["twice"].comparison.verdict, judged["twice"].comparison.why) == ("not worse", IDENTICAL)
    assert judged["b"].comparison.verdict == "inconclusive"
    assert judged["b"].comparison.family == 1


def test_the_best_of_several_is_compared_with_and_shrunk() -> None:
    draw = random.Random(3)
    runs = [
        entry([float(draw.random() < 0.5) for _ in range(300)], checkpoint=f"run{place}")
        for place in range(8)
    ]
    new = entry([float(draw.random() < 0.5) for _ in range(300)], checkpoint="new")
    found = compare(new, runs)
    values = [sum(map(known, one.items.scores["acc"])) / 300 for one in runs]
    assert found.as_measured.baseline == max(values) == values[found.place]
    assert known(found.comparison.baseline) < known(found.as_measured.baseline)
    assert found.against is not None
    assert found.against.runs == 8
    assert found.against.candidates > 1


def test_all_benchmarks_of_a_checkpoint_are_one_family() -> None:
    old, new = entry(right(30, 100)), entry(right(22, 100), checkpoint="new")
    same = entry(right(30, 100), checkpoint="other")
    one = compute_verdicts({"b": compare(new, [old])})["b"].comparison
    others = {f"c{n}": compare(same, [old]) for n in range(9)}
    many = compute_verdicts({"b": compare(new, [old]), **others})["b"].comparison
    assert (one.verdict, one.family) == ("worse", 1)
    assert (many.verdict, many.family) == ("inconclusive", 10)


def test_margins_of_benchmarks_that_are_not_compared_are_no_fault() -> None:
    old, new = entry(right(300, 400)), entry(right(200, 400), checkpoint="new")
    judged = compute_verdicts({"b": compare(new, [old])}, margins={"b": 0.3, "elsewhere": 0.1})
    assert judged["b"].comparison.verdict == "not worse"
    assert judged["b"].comparison.margin == 0.3


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
        CompositeComponent(0.4, "x", new_p, [old_p, best_p]),
        CompositeComponent(0.3, "y", new_p, [old_p, best_p]),
        CompositeComponent(0.3, "z", new_q, [old_q, best_q]),
    ]
    found = compare_composite("score", weighed)
    assert found.place == 1
    assert found.comparison.difference == pytest.approx(0.7 * (0.2 - 0.5))
    assert compute_verdicts({"score": found})["score"].comparison.verdict == "worse"


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


NAMES = ("a", "b", "c", "d", "e", "f")


def flipped(n: int, gained: int, lost: int) -> tuple[list[float], list[float]]:
    """Both runs' answers: half of the items right, so many of the others gained, and so many lost."""
    old = np.arange(n) < n // 2
    new = old.copy()
    new[n - gained :] = True
    new[:lost] = False
    return old.astype(float).tolist(), new.astype(float).tolist()


def results(*flips: tuple[int, int], n: int = 400) -> tuple[list[BenchmarkScores], list[BenchmarkScores]]:
    """The earlier and the new result of one benchmark for each pair of gained and lost items."""
    earlier, mine = [], []
    for name, (gained, lost) in zip(NAMES, flips, strict=False):
        old, new = flipped(n, gained, lost)
        earlier.append(entry(old, checkpoint="old", benchmark=name))
        mine.append(entry(new, checkpoint="new", benchmark=name, run_id="now", began=99.0))
    return earlier, mine


def gate(earlier: list[BenchmarkScores], mine: list[BenchmarkScores], **plan: Any) -> GateResult:
    return decide(cases_of(mine, []), source(*earlier), GateConfig(**{"mode": "plain", **plan}))


def with_clusters(one: BenchmarkComparison) -> BenchmarkComparison:
    """The comparison as one whose items are not their own units."""
    return replace(one, comparison=replace(one.comparison, units=one.comparison.n - 1))


def test_all_items_together_are_mcnemars_test_of_all_flips() -> None:
    earlier, mine = results((5, 20), (9, 12), n=200)
    parts = {
        one.saved.benchmark: PooledPart(one, [old], compare(one, [old]))
        for one, old in zip(mine, earlier, strict=True)
    }
    found = pool(parts, level=0.95)
    assert found is not None
    exact = compare_flips(168, 14, 32, 186)
    assert found.compared.comparison.p == pytest.approx(exact.p)
    assert found.compared.comparison == exact
    # As a composite, the way for clusters and graded scores, it is the same test.
    clustered = pool(
        {name: part._replace(compared=with_clusters(part.compared)) for name, part in parts.items()},
        level=0.95,
    )
    assert clustered is not None
    assert clustered.compared.comparison.p == pytest.approx(exact.p)
    assert clustered.compared.comparison.difference == pytest.approx(exact.difference)
    assert found.benchmarks == ("a", "b")


def test_a_loss_spread_over_a_suite_is_shown_and_fails_the_gate_only_where_that_is_asked_for() -> None:
    earlier, mine = results(*[(10, 22)] * 6)
    shown = gate(earlier, mine)
    assert {line.kind for line in shown.lines} == {"inconclusive"}
    assert [line.kind for line in shown.pooled] == ["worse"]
    assert shown.exit_code == 0
    deciding = gate(earlier, mine, pooled=True)
    assert deciding.exit_code == 8
    assert not missing(decision_text(deciding), 8, "6 benchmarks pooled", "-3.00 points")
    assert [line.comparison.family for line in deciding.lines] == [7] * 7
    assert deciding.pooled[0] in deciding.lines
    assert shown.pooled[0].comparison.family == 1


def test_the_best_over_all_items_is_the_baseline_and_its_luck_is_allowed_for() -> None:
    names, earlier = ("a", "b"), []
    for number in range(8):
        earlier += [
            entry(right(200 + number, 400), checkpoint=f"old{number}", benchmark=name) for name in names
        ]
    # the one with the best "a" lacks "b"
    earlier.append(entry(right(300, 400), checkpoint="partial", benchmark="a"))
    mine = [entry(right(203, 400), benchmark=name, run_id="now", began=99.0) for name in names]
    (line,) = gate(earlier, mine).pooled
    assert line.against is not None
    assert (line.against.checkpoint, line.against.runs) == ("old7", 8)
    assert known(line.comparison.difference) > known(line.as_measured.difference)


def test_one_benchmark_and_benchmarks_without_a_common_checkpoint_are_not_pooled() -> None:
    assert gate(*results((3, 9))).pooled == ()
    earlier = [entry(right(200, 400), checkpoint=f"old {name}", benchmark=name) for name in "ab"]
    mine = [entry(right(200, 400), benchmark=name, run_id="now", began=99.0) for name in "ab"]
    assert gate(earlier, mine).pooled == ()


def test_scores_that_are_no_shares_are_left_out() -> None:
    earlier, mine = results((3, 9), (4, 9))
    other = [
        entry([-5.0, *right(200, 399)], checkpoint=one, benchmark="c", run_id=one, began=began)
        for one, began in (("old", 1.0), ("new", 99.0))
    ]
    found = gate([*earlier, other[0]], [*mine, other[1]])
    assert [line.benchmark for line in found.pooled] == ["2 benchmarks"]


def test_a_result_that_is_not_valid_is_left_out_and_named() -> None:
    earlier, mine = results((3, 9), (4, 8), (0, 300))
    wrong = replace(mine[2], saved=replace(mine[2].saved, invalid="8 of 10 outputs ended at the limit"))
    (line,) = gate(earlier, [*mine[:2], wrong]).pooled
    assert line.benchmark == "2 benchmarks"
    assert f"without {wrong.saved.benchmark}, NOT VALID" in line.notes


def test_lines_say_what_they_see_also_once_they_are_written() -> None:
    found = gate(*results((10, 22), (10, 22)))
    plain = json.loads(json.dumps(gate_json(found, decision_text(found))))
    for key in ("lines", "pooled"):
        for line, again in zip(getattr(found, key), lines_from_json(plain, key), strict=True):
            assert again == line
            assert 0.02 < (again.sees or 0.0) < 0.06
    assert plain["pooled"][0]["sees"] < plain["lines"][0]["sees"]


def test_a_result_that_is_known_for_its_own_baseline_sees_nothing() -> None:
    earlier, _ = results((0, 0), (0, 0))
    mine = [
        entry(flipped(400, 0, 0)[0], checkpoint="old", benchmark=one, run_id="now", began=99.0)
        for one in "ab"
    ]
    found = gate(earlier, mine)
    assert {line.kind for line in (*found.lines, *found.pooled)} == {"not worse"}
    plain = gate_json(found, "")
    assert {row["sees"] for row in (*plain["lines"], *plain["pooled"])} == {None}


def test_the_configuration_has_a_switch_for_it_that_needs_all_items() -> None:
    assert gate_config_of({"pooled": True}, "gate").pooled
    with pytest.raises(GateError, match=r"pooled is 'yes'; .*true"):
        gate_config_of({"pooled": "yes"}, "gate")
    with pytest.raises(GateError, match=r"pooled = true .*all items"):
        check_plan(GateConfig(mode="plain", pooled=True, sequential=True), {}, [], [])


def test_a_comparison_has_it_too() -> None:
    columns = {name: flipped(400, 10, 22) for name in NAMES}
    pair = compare_pair(
        ran("a", {name: old for name, (old, _) in columns.items()}),
        ran("b", {name: new for name, (_, new) in columns.items()}),
    )
    assert pair.pooled is not None
    assert pair.pooled.comparison.verdict is not None
    assert pair.pooled.comparison.verdict == "worse"
    assert comparison.pooled_text(pair.pooled).startswith("worse: -3.00 points [")
    assert not missing(comparison.pooled_text(pair.pooled), "2400 items", "6 benchmarks")
    assert comparison.pair_facts(pair)["pooled"]["verdict"] == "worse"
    alone = compare_pair(ran("a", {"a": columns["a"][0]}), ran("b", {"a": columns["a"][1]}))
    assert alone.pooled is None
    assert comparison.pair_facts(alone)["pooled"] is None
