"""All items of several benchmarks as one: what the gate and a comparison of two results say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig, check_plan, gate_config_of
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult, gate_json, lines_from_json
from pytest_touchstone.compare.judge import Compared, PooledPart, compare, pool
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.statistics.paired import compare_flips
from tests.support.compared import ran
from tests.support.entries import entry, right, source

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


def with_clusters(one: Compared) -> Compared:
    """The comparison as one whose items are not their own units."""
    return replace(one, comparison=replace(one.comparison, units=one.comparison.n - 1))


def test_all_items_together_are_mcnemars_test_of_all_flips() -> None:
    earlier, mine = results((5, 20), (9, 12), n=200)
    parts = {
        one.saved.benchmark: PooledPart("acc", one, [old], compare(one, [old]))
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
    assert decision_text(deciding) == "gate failed (exit code 8): 6 benchmarks pooled is worse (-3.00 points)"
    assert [line.family for line in deciding.lines] == [7] * 7
    assert deciding.pooled[0] in deciding.lines
    assert shown.pooled[0].family == 1


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
    assert line.difference is not None
    assert line.as_measured is not None
    assert line.difference > line.as_measured


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
            assert line.reach == again.sees
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
    assert {line.reach for line in (*found.lines, *found.pooled)} == {None}


def test_the_configuration_has_a_switch_for_it_that_needs_all_items() -> None:
    assert gate_config_of({"pooled": True}, "gate").pooled
    with pytest.raises(GateError, match="pooled is 'yes'; give true or false"):
        gate_config_of({"pooled": "yes"}, "gate")
    with pytest.raises(GateError, match="pooled = true needs all items"):
        check_plan(GateConfig(mode="plain", pooled=True, sequential=True), {}, [], [])


def test_a_comparison_has_it_too() -> None:
    columns = {name: flipped(400, 10, 22) for name in NAMES}
    pair = compare_pair(
        ran("a", {name: old for name, (old, _) in columns.items()}),
        ran("b", {name: new for name, (_, new) in columns.items()}),
    )
    assert pair.pooled is not None
    assert pair.pooled.verdict is not None
    assert pair.pooled.verdict.kind == "worse"
    assert comparison.pooled(pair.pooled).startswith("worse: -3.00 points [")
    assert comparison.pooled(pair.pooled).endswith("; 2400 items of 6 benchmarks")
    assert comparison.pair_facts(pair)["pooled"]["verdict"] == "worse"
    alone = compare_pair(ran("a", {"a": columns["a"][0]}), ran("b", {"a": columns["a"][1]}))
    assert alone.pooled is None
    assert comparison.pair_facts(alone)["pooled"] is None
