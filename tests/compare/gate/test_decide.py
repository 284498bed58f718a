"""Verdicts, floors and drops become an exit code: 9 where nothing can be said, before 8, before 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.baselines import BaselineChoice, BaselineSource
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import compare, compute_verdicts
from pytest_touchstone.compare.gate.config import BenchmarkRules, Floor, GateConfig
from pytest_touchstone.compare.gate.decide import FIRST, EarlyVerdict, cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult, gate_json, lines_from_json, ordered
from pytest_touchstone.compare.standings import best_checkpoint, standings_of
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.reports.gate import baseline_text, decision_text, difference_text, heading
from pytest_touchstone.statistics.verdicts import P_DECIDES
from tests.support.entries import entry, right, source
from tests.support.lines import missing

N = 400


def gate(
    *mine: BenchmarkScores,
    old: tuple[BenchmarkScores, ...] = (),
    where: BaselineSource | None = None,
    composites: Mapping[str, float] | None = None,
    **plan: Any,
) -> GateResult:
    rows = [
        {"name": name, "checkpoint": mine[0].saved.checkpoint, "value": value}
        for name, value in (composites or {}).items()
    ]
    return decide(cases_of(mine, rows), where or source(*old), GateConfig(**{"mode": "plain", **plan}))


def new(
    count: int, benchmark: str = "b", checkpoint: str = "new", of: int = N, **more: Any
) -> BenchmarkScores:
    return entry(
        right(count, of), checkpoint=checkpoint, benchmark=benchmark, run_id="now", began=99.0, **more
    )


def old(count: int, benchmark: str = "b", checkpoint: str = "old", **more: Any) -> BenchmarkScores:
    return entry(right(count, N), checkpoint=checkpoint, benchmark=benchmark, **more)


def kinds(found: GateResult) -> list[str]:
    return [line.kind for line in found.lines]


@pytest.mark.parametrize("places", [(0,), (0, 1), (2,)])
def test_scores_too_large_for_a_mean_are_inconclusive_and_the_others_are_judged(
    places: tuple[int, ...],
) -> None:
    """In one of several baselines, in all, or in the new result."""
    columns = [[1.0, 0.0, 1e155] if place in places else [1.0, 0.0, 1.0] for place in range(3)]
    *before, after = (
        entry(column, checkpoint=f"c{place}", benchmark="h", run_id=f"r{place}", began=10.0 * place)
        for place, column in enumerate(columns)
    )
    found = gate(after, new(200), old=(*before, old(260)))
    lines = {line.benchmark: line for line in found.lines}
    assert (lines["h"].kind, lines["b"].kind) == ("inconclusive", "worse")


def test_a_note_says_that_p_decides_where_an_interval_disagrees_with_it() -> None:
    assert P_DECIDES in gate(new(12, of=40), old=(entry(right(16, 40)),)).notes
    assert P_DECIDES not in gate(new(200), old=(old(260),)).notes


def test_worse_is_8_and_the_reverse_0() -> None:
    worse = gate(new(200), old=(old(260),))
    assert (worse.exit_code, worse.decision, kinds(worse)) == (8, "failed", ["worse"])
    assert decision_text(worse) == "gate failed (exit code 8): b acc is worse (-15.00 points)"
    better = gate(new(260), old=(old(200),))
    assert (better.exit_code, kinds(better)) == (0, ["better"])
    assert decision_text(better) == "gate passed: 1 better"


def test_a_first_result_passes_and_says_that_it_is_the_first() -> None:
    first = gate(new(200))
    assert (first.exit_code, kinds(first)) == (0, ["first"])
    assert not missing(decision_text(first), "passed", "first")
    assert gate(new(200), mode="strict").exit_code == 0


def test_a_strict_gate_fails_where_nobody_can_tell() -> None:
    found = {mode: gate(new(198), old=(old(200),), mode=mode) for mode in ("plain", "strict")}
    assert kinds(found["plain"]) == kinds(found["strict"]) == ["inconclusive"]
    assert (found["plain"].exit_code, found["strict"].exit_code) == (0, 8)
    assert not missing(decision_text(found["plain"]), "1 inconclusive", "--eval-gate-mode strict")
    assert found["strict"].lines[0].comparison.items_to_tell
    assert not missing(decision_text(found["strict"]), 8, "b acc", "-0.50 points")


def test_a_line_that_is_inconclusive_and_higher_says_that_the_reference_stays() -> None:
    def moved(to: int) -> GateResult:
        column = [0.0] * 30 + [1.0] * to + [0.0] * (N - 30 - to)
        mine = entry(column, checkpoint="new", benchmark="b", run_id="now", began=99.0)
        return gate(mine, old=(old(208),))

    assert (kinds(moved(212)), kinds(moved(204))) == (["inconclusive"], ["inconclusive"])
    (note,) = moved(212).notes
    assert not missing(note, "b", "old stays the reference")
    assert moved(204).notes == ()


def test_without_gate_the_exit_code_stays_0_whatever_is_found() -> None:
    shown = gate(new(100), old=(old(300),), mode=None)
    assert (shown.exit_code, shown.decision, kinds(shown)) == (0, "shown", ["worse"])
    assert not missing(decision_text(shown), "1 worse", "--gate")


@pytest.mark.parametrize(
    ("flaw", "word", "verdict"),
    [
        ({"faults": 1, "collected": N + 1}, "whole", "inconclusive"),
        ({"skipped": 1}, "whole", "worse"),
        ({"invalid": "9 of 10 outputs were cut"}, "valid", "inconclusive"),
    ],
)
def test_a_result_that_is_not_whole_or_not_valid_is_9_and_outweighs_8(
    flaw: dict[str, Any], word: str, verdict: str
) -> None:
    for mode in ("plain", "strict"):
        both = gate(new(100, **flaw), new(100, "c"), old=(old(300), old(300, "c")), mode=mode)
        assert both.exit_code == 9
        assert [line.comparison.verdict for line in both.lines] == [verdict, "worse"]
        text = decision_text(both)
        assert not missing(text, 9, "b acc: the result is", f"not {word}", "c acc is worse (-50.00")
        assert ("b acc is worse" in text) == (verdict == "worse")


def test_floors_that_are_missed_are_named_in_their_order() -> None:
    rules = BenchmarkRules(floors=(Floor("acc", ">=", 0.9), Floor("acc", ">=", 0.8)))
    missed = gate(new(200), old=(old(200),), benchmarks={"b": rules})
    text = decision_text(missed)
    assert 0 < text.index("acc >= 0.9") < text.index("acc >= 0.8")


def test_what_is_not_comparable_is_9_with_the_fields_named() -> None:
    found = gate(new(300, conditions={"seed": 3}), old=(old(300),))
    assert found.exit_code == 9
    assert not missing(decision_text(found), "seed is 3", 1234)


def test_a_reason_that_benchmarks_share_is_told_once() -> None:
    mine = [new(300, name, conditions={"seed": 3}) for name in "bc"]
    text = decision_text(gate(*mine, old=(old(300), old(300, "c"))))
    assert not missing(text, 9, "b acc, c acc")
    assert text.count("seed is 3") == 1


def test_one_item_less_than_a_named_baseline_has_is_9() -> None:
    found = gate(new(300, of=N - 1), where=source(old(300), kind="run", name="r7"))
    assert found.exit_code == 9
    assert "1 item missing here: b/0399" in decision_text(found)


def test_a_part_of_what_was_asked_before_passes_no_comparison_and_the_decision_says_so() -> None:
    part = (new(2, of=2), new(300, "c"))
    found = gate(*part, old=(old(300), old(300, "c")))
    assert (found.exit_code, kinds(found)) == (0, ["not compared", "not worse"])
    text = decision_text(found)
    assert not missing(text, "1 not worse", "1 not compared", "NOTHING WAS COMPARED for b", "2 of 400 items")
    assert not missing(text, "--eval-gate-mode strict")
    strict = gate(*part, old=(old(300), old(300, "c")), mode="strict")
    assert (strict.exit_code, kinds(strict)) == (8, ["not compared", "not worse"])
    assert not missing(decision_text(strict), "b acc", "2 of 400 items")
    alone = gate(part[0], old=(old(300),))
    assert decision_text(alone).startswith("gate passed WITHOUT A COMPARISON: ")
    shown = gate(*part, old=(old(300), old(300, "c")), mode=None)
    assert not missing(decision_text(shown), "NOTHING WAS COMPARED for b", "2 of 400 items")


def test_a_whole_run_after_a_trial_is_the_first_on_its_items() -> None:
    trial = entry(right(2, 2), conditions={"limit": 2})
    for mode in ("plain", "strict"):
        found = gate(new(300), old=(trial,), mode=mode)
        assert (found.exit_code, kinds(found)) == (0, ["first"])
        assert not missing(decision_text(found), "passed", "on these items", "first")
        (note,) = found.lines[0].notes
        assert not missing(note, "1 earlier result", "not used", "old in run-old", "2 of 400 items")


def test_a_part_that_is_compared_with_the_same_part_says_that_it_is_one() -> None:
    found = gate(new(300, of=399), old=(old(300), entry(right(300, 399), checkpoint="part")))
    assert (found.exit_code, kinds(found)) == (0, ["not worse"])
    assert not missing(decision_text(found), "1 not worse", "b acc", "399 of 400 items")


def test_a_floor_is_kept_whatever_the_baseline() -> None:
    own = {"b": BenchmarkRules(floors=(Floor("acc", ">=", 0.6),))}
    fine, low = gate(new(240), benchmarks=own), gate(new(239), benchmarks=own)
    assert (fine.exit_code, low.exit_code) == (0, 8)
    assert not missing(decision_text(low), 8, "b acc", "acc >= 0.6", "0.5975")
    assert kinds(low) == ["failed"]
    nothing = BaselineSource(name="none", kind="none")
    assert gate(new(240), where=nothing, benchmarks=own).exit_code == 0
    assert gate(new(239), where=nothing, benchmarks=own).exit_code == 8


def test_a_floor_of_a_metric_that_there_is_not_is_a_mistake() -> None:
    with pytest.raises(GateError, match=r"'f1 >= 0\.6' .*b: .*acc"):
        gate(new(240), benchmarks={"b": BenchmarkRules(floors=(Floor("f1", ">=", 0.6),))})


def test_a_floor_of_a_benchmark_that_was_not_run_is_9() -> None:
    found = gate(new(240), benchmarks={"c": BenchmarkRules(floors=(Floor("acc", ">=", 0.6),))})
    assert found.exit_code == 9
    assert not missing(decision_text(found), "c acc", "floor acc >= 0.6")


def test_a_drop_that_is_too_large_fails_even_where_nobody_can_tell() -> None:
    for most, code in ((0.02, 0), (0.01, 8)):
        found = gate(new(195), old=(old(200),), benchmarks={"b": BenchmarkRules(max_drop=most)})
        assert (found.exit_code, found.lines[0].comparison.verdict) == (code, "inconclusive")
    assert not missing(decision_text(found), "dropped by 1.25 points", "max_drop is 1")
    assert kinds(found) == ["failed"]


def lucky(*columns: list[float]) -> tuple[BenchmarkScores, ...]:
    """Earlier checkpoints on 12 items, of which one is the best by luck as far as anybody can tell."""
    return tuple(entry(column, checkpoint=f"c{place}") for place, column in enumerate(columns))


def test_the_largest_drop_allowed_is_held_against_the_measured_value_of_the_best_of_many() -> None:
    nothing, earlier = [0.0] * 12, lucky(right(1, 12), right(1, 12)[::-1], [0.0] * 5 + right(2, 7))
    mine = entry(nothing, checkpoint="new", run_id="now", began=99.0)
    found = gate(mine, old=earlier, benchmarks={"b": BenchmarkRules(max_drop=0.12)})
    (line,) = found.lines
    assert line.against is not None
    assert (line.as_measured.baseline, line.as_measured.difference) == pytest.approx((2 / 12, -2 / 12))
    assert line.comparison.difference is not None
    assert line.comparison.difference > -0.12  # what is left after allowing for the choice
    assert (found.exit_code, line.comparison.verdict) == (8, "inconclusive")
    assert not missing(decision_text(found), "dropped by 16.67 points", "max_drop is 12")
    assert "0.1667 as measured (-16.67 points), " in baseline_text(line)
    assert gate(mine, old=earlier, benchmarks={"b": BenchmarkRules(max_drop=0.17)}).exit_code == 0


def test_a_drop_as_large_as_allowed_is_no_larger_drop_whatever_the_rounding() -> None:
    assert 0.85 - 0.9 < -0.05
    found = gate(
        new(85, of=100),
        old=(entry(right(90, 100)),),
        benchmarks={"b": BenchmarkRules(max_drop=0.05)},
    )
    assert found.exit_code == 0


def test_the_largest_drop_of_a_composite_is_of_its_measured_value_too() -> None:
    earlier = [one for n in range(6) for one in korean(200 + n, 200 - n, f"c{n}")]
    mine = korean(190, 190, "new", 9.0)
    for most, code in ((0.026, 8), (0.04, 0)):
        own = {"score_wiki": BenchmarkRules(max_drop=most)}
        found = gate(*mine, old=tuple(earlier), metrics=("score_wiki",), margin=0.5, benchmarks=own)
        line = found.lines[-1]
        assert line.against is not None
        assert line.as_measured.baseline is not None
        assert line.comparison.new is not None
        assert line.as_measured.difference == pytest.approx(line.comparison.new - line.as_measured.baseline)
        assert found.exit_code == code


def test_the_largest_drop_of_a_perplexity_is_of_its_log_probabilities() -> None:
    how = {"perplexity": {"by": "perplexity", "of": "logprob"}}
    before, now = ({"logprob": [-1.0 - n / 9 - off for n in range(12)]} for off in (0.0, 0.1))
    old_ = entry(before, aggregate=how)
    mine = entry(now, checkpoint="new", run_id="now", began=9.0, aggregate=how)
    for most, code in ((0.09, 8), (0.11, 0)):
        own = {"b": BenchmarkRules(metrics=("perplexity",), max_drop=most, margin=0.5)}
        found = gate(mine, old=(old_,), benchmarks=own)
        assert (found.exit_code, found.lines[0].metric) == (code, "perplexity")
        assert found.lines[0].label == "perplexity (by log-probability)"
        assert "b perplexity (by log-probability)" in decision_text(found) or not code


def test_a_verdict_that_was_settled_early_has_its_largest_drop_measured_on_the_items_so_far() -> None:
    earlier = lucky(right(140, N), right(140, N)[::-1])
    mine = new(130)
    compared = compare(mine, earlier)
    assert compared.comparison.difference is not None
    assert compared.comparison.difference > -0.024
    choice = BaselineChoice(state="chosen", baselines=earlier)
    early = EarlyVerdict(choice, compute_verdicts({"b": compared}, margin=0.5)["b"])
    for most, code in ((0.024, 8), (0.026, 0)):
        plan = GateConfig(mode="plain", benchmarks={"b": BenchmarkRules(max_drop=most)})
        found = decide(cases_of([mine], []), source(*earlier), plan, {("new", "b"): early})
        assert (found.lines[0].as_measured.difference, found.exit_code) == (
            compared.as_measured.difference,
            code,
        )


def test_a_benchmark_has_its_own_margin_and_metric() -> None:
    two = {"acc": right(200, N), "f1": right(300, N)}
    mine = entry({**two, "f1": right(200, N)}, checkpoint="new", run_id="now", began=9.0)
    assert kinds(gate(mine, old=(entry(two),))) == ["not worse"]
    assert kinds(gate(mine, old=(entry(two),), benchmarks={"b": BenchmarkRules(metrics=("f1",))})) == [
        "worse"
    ]
    assert kinds(
        gate(mine, old=(entry(two),), benchmarks={"b": BenchmarkRules(metrics=("f1",), margin=0.3)})
    ) == ["not worse"]
    assert kinds(gate(mine, old=(entry(two),), metrics=("f1",))) == ["worse"]
    with pytest.raises(GateError, match=r"^b .*'f2'; .*acc, f1"):
        gate(mine, old=(entry(two),), benchmarks={"b": BenchmarkRules(metrics=("f2",))})
    with pytest.raises(GateError, match=r"--eval-set gate_metric: .*'f2'; .*acc, f1$"):
        gate(mine, old=(entry(two),), metrics=("f2",))


def test_of_several_checkpoints_each_has_its_verdict_and_the_worst_counts() -> None:
    found = gate(new(300, checkpoint="x"), new(200, checkpoint="y"), old=(old(300),))
    assert [(line.checkpoint, line.kind) for line in found.lines] == [("x", "not worse"), ("y", "worse")]
    assert found.exit_code == 8
    assert not missing(decision_text(found), 8, "y, b acc")


def test_a_benchmark_that_only_the_baseline_has_is_said() -> None:
    found = gate(new(300), old=(old(300), old(300, "c"), old(300, "d", checkpoint="third")))
    (note,) = found.notes
    assert "results of c," in note


def test_a_benchmark_that_the_named_run_has_not_is_said_and_none_at_all_is_9() -> None:
    where = source(old(300), kind="run", name="r7")
    some = gate(new(300), new(300, "c"), where=where)
    assert "r7" in some.lines[1].comparison.why
    assert (some.exit_code, some.lines[1].kind) == (0, "no baseline")
    none = gate(new(300, "c"), where=where)
    assert none.exit_code == 9
    assert not missing(decision_text(none), 9, "r7")


REAL, LAMBADA = "real_coref", "ko_lambada_wiki"


def korean(
    real: int, lambada: int, checkpoint: str, began: float = 1.0
) -> tuple[BenchmarkScores, BenchmarkScores]:
    more: dict[str, Any] = {"checkpoint": checkpoint, "began": began, "run_id": f"r-{checkpoint}"}
    return (
        entry({"real@1": right(real, N), "real@5": right(real, N)}, benchmark=REAL, **more),
        entry({"lambada@1": right(lambada, N)}, benchmark=LAMBADA, **more),
    )


def test_the_best_by_a_composite_is_one_checkpoint_for_all_its_benchmarks() -> None:
    balanced, one_sided = korean(200, 200, "balanced"), korean(150, 290, "one-sided")
    found = gate(*korean(200, 200, "new", 9.0), old=(*balanced, *one_sided), metrics=("score_wiki",))
    assert {line.against.checkpoint for line in found.lines if line.against} == {"balanced"}
    assert [line.benchmark for line in found.lines] == [REAL, LAMBADA, "score_wiki"]


def test_all_benchmarks_go_with_the_checkpoint_that_is_the_best_over_all_items() -> None:
    balanced, one_sided = korean(200, 200, "balanced"), korean(150, 290, "one-sided")
    found = gate(*korean(200, 200, "new", 9.0), old=(*balanced, *one_sided))
    assert {line.against.checkpoint for line in (*found.lines, *found.pooled) if line.against} == {
        "one-sided"
    }
    best = best_checkpoint(standings_of((*balanced, *one_sided)))
    assert best is not None
    assert best.checkpoint == "one-sided"


def test_a_trial_of_one_benchmark_does_not_change_the_best_of_the_others() -> None:
    earlier = [*korean(200, 200, "low"), *korean(220, 210, "high"), korean(300, 0, "trial")[0]]
    found = gate(*korean(200, 200, "new", 9.0), old=tuple(earlier))
    assert {line.against.checkpoint for line in found.lines if line.against} == {"high"}


def test_benchmarks_that_no_checkpoint_has_both_of_each_have_their_best() -> None:
    earlier = [korean(count, 0, f"real-{count}")[0] for count in (200, 210)]
    earlier += [korean(0, count, f"lambada-{count}")[1] for count in (220, 190, 180)]
    found = gate(*korean(200, 200, "new", 9.0), old=tuple(earlier))
    chosen = [line.against.checkpoint for line in found.lines if line.against]
    assert chosen == ["real-210", "lambada-220"]
    assert found.pooled == ()


def test_a_benchmark_that_only_the_first_runs_have_does_not_make_one_of_them_the_reference_of_all() -> None:
    former = entry(right(390, N), benchmark="former", checkpoint="first", run_id="r-first")
    earlier = [*korean(100, 100, "first"), former, *korean(200, 210, "second"), *korean(210, 230, "third")]
    new = entry(right(390, N), benchmark="former", checkpoint="new", run_id="r-new", began=9.0)
    found = gate(*korean(200, 200, "new", 9.0), new, old=tuple(earlier))
    chosen = {line.benchmark: line.against.checkpoint for line in found.lines if line.against}
    assert chosen == {REAL: "third", LAMBADA: "third", "former": "first"}


def test_a_composite_without_a_baseline_is_the_first_too() -> None:
    found = gate(*korean(200, 200, "new", 9.0), metrics=("score_wiki",), composites={"score_wiki": 0.5})
    assert kinds(found) == ["first"] * 3
    assert {line.comparison.why for line in found.lines} == {FIRST}


def test_a_composite_whose_parts_were_not_run_is_9() -> None:
    found = gate(korean(200, 200, "new", 9.0)[0], old=korean(200, 200, "old"), metrics=("score_wiki",))
    assert found.exit_code == 9
    assert "score_wiki needs ko_lambada_wiki" in decision_text(found)


def test_a_composite_may_have_floors() -> None:
    own = {"score_wiki": BenchmarkRules(floors=(Floor("score_wiki", ">=", 0.5),))}
    for value, code in ((0.6, 0), (0.4, 8)):
        found = gate(*korean(200, 200, "new"), composites={"score_wiki": value}, benchmarks=own)
        assert found.exit_code == code


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from(["plain", "strict", None]))
def test_what_a_gate_found_survives_json_and_its_worst_lines_come_first(
    mine: int, other: int, mode: str | None
) -> None:
    found = gate(
        entry(right(mine, 60), checkpoint="new", run_id="n", began=9.0),
        entry(right(other, 60), checkpoint="new", run_id="n", began=9.0, benchmark="c"),
        old=(entry(right(30, 60)), entry(right(30, 60), benchmark="c")),
        mode=mode,
    )
    plain = json.loads(json.dumps(gate_json(found, decision_text(found)), allow_nan=False))
    assert lines_from_json(plain) == ordered(found.lines)
    assert plain["exit_code"] == found.exit_code
    failing = [bool(line.fails) for line in ordered(found.lines)]
    assert failing == sorted(failing, reverse=True)
    assert (found.exit_code == 8) == (mode is not None and any(failing))


def real(first: int, fifth: int, checkpoint: str, began: float = 1.0) -> BenchmarkScores:
    columns = {"real@1": right(first, N), "real@5": right(fifth, N)}
    return entry(columns, benchmark=REAL, checkpoint=checkpoint, began=began, run_id=f"r-{checkpoint}")


BOTH = ("real@1", "real@5")


def test_several_metrics_are_a_line_each_held_against_the_best_by_each() -> None:
    earlier = (real(200, 250, "a"), real(150, 300, "b"))
    found = gate(real(200, 240, "new", 9.0), old=earlier, metrics=BOTH)
    assert [(line.metric, line.against.checkpoint) for line in found.lines if line.against] == [
        ("real@1", "a"),
        ("real@5", "b"),
    ]
    assert found.lines[1].kind == "worse"
    assert not missing(decision_text(found), 8, "real_coref real@5")
    assert gate(real(200, 240, "new", 9.0), old=earlier).exit_code == 0


def test_metrics_of_one_benchmark_are_corrected_together() -> None:
    """A p that is small enough alone is not where another metric was looked at too."""
    earlier, mine = (real(220, 230, "a"),), real(214, 230, "new", 9.0)
    alone, both = (gate(mine, old=earlier, metrics=names) for names in (BOTH[:1], BOTH))
    assert (alone.lines[0].comparison.p_adjusted, alone.lines[0].comparison.family) == (
        alone.lines[0].comparison.p,
        1,
    )
    assert both.lines[0].comparison.p_adjusted == pytest.approx(2 * (both.lines[0].comparison.p or 0))
    assert [line.comparison.family for line in both.lines] == [2, 2]
    assert (kinds(alone)[0], kinds(both)[0]) == ("worse", "inconclusive")


def test_a_benchmark_may_name_several_metrics_of_its_own() -> None:
    found = gate(
        real(200, 200, "new", 9.0),
        old=(real(200, 300, "a"),),
        benchmarks={REAL: BenchmarkRules(metrics=BOTH)},
    )
    assert [(line.metric, line.kind) for line in found.lines] == [
        ("real@1", "not worse"),
        ("real@5", "worse"),
    ]


def test_a_composite_may_stand_beside_its_metrics() -> None:
    earlier = (*korean(200, 200, "balanced"), *korean(210, 100, "one-sided"))
    found = gate(*korean(200, 200, "new", 9.0), old=earlier, metrics=("score_wiki", "real@1"))
    chosen = {(line.benchmark, line.metric): line.against.checkpoint for line in found.lines if line.against}
    assert chosen == {
        (REAL, "real@1"): "balanced",
        (LAMBADA, "lambada@1"): "balanced",
        ("score_wiki", "composite"): "balanced",
    }
    assert {line.comparison.family for line in found.lines} == {3}


def test_a_benchmark_without_any_of_the_metrics_says_so_by_name() -> None:
    mine = (real(200, 200, "new", 9.0), new(200, "arc"))
    found = gate(*mine, metrics=BOTH)
    *both, other = [line.notes for line in found.lines]
    assert both == [(), ()]
    assert not missing(other[0], "arc", "real@1 or real@5", "acc")


def test_a_metric_that_no_benchmark_has_is_named_with_the_nearest() -> None:
    with pytest.raises(GateError, match=r"--eval-set gate_metric: .*'real@6'; .*'real@5'"):
        gate(real(1, 2, "new"), metrics=("real@1", "real@6"))


def test_each_floor_is_held_once_with_its_metric() -> None:
    own = {REAL: BenchmarkRules(floors=(Floor("real@5", ">=", 0.6),), max_drop=0.01)}
    found = gate(real(200, 200, "new", 9.0), metrics=BOTH, benchmarks=own)
    (none, (fails,)) = [line.fails for line in found.lines]
    assert none == ()
    assert not missing(fails, "real@5 >= 0.6", 0.5)
    only = gate(real(200, 200, "new", 9.0), metrics=("real@1",), benchmarks=own)
    assert [line.fails for line in only.lines] == [(fails,)]


def test_the_largest_drop_is_held_against_every_metric_that_is_judged() -> None:
    own = {REAL: BenchmarkRules(max_drop=0.01)}
    found = gate(
        real(200, 195, "new", 9.0),
        old=(real(200, 200, "a"),),
        metrics=BOTH,
        margin=0.5,
        benchmarks=own,
    )
    assert [bool(line.fails) for line in found.lines] == [False, True]


def bits(*values: float, checkpoint: str = "old", name: str = "bits_per_byte") -> BenchmarkScores:
    columns = {"acc": right(20, 40), name: [*values] * 20}
    return entry(columns, checkpoint=checkpoint, began=float(checkpoint == "new"))


def test_bits_are_judged_by_their_own_margin_and_told_in_bits() -> None:
    found = gate(
        bits(1.10, 1.12, checkpoint="new"), old=(bits(1.0, 1.0),), metrics=("bits_per_byte",), margin=0.5
    )
    (line,) = found.lines
    assert (line.comparison.verdict, line.comparison.margin, line.comparison.unit) == ("worse", 0.01, "bits")
    assert line.comparison.why.startswith("+0.1100 bits [")
    plain = gate_json(found, decision_text(found))
    assert "bits_per_byte is worse (+0.1100 bits)" in plain["text"]
    assert "margin 0.01 bits of bits_per_byte," in heading(plain)
    assert difference_text(lines_from_json(plain)[0]).endswith("] bits")


def test_a_drop_in_bits_is_held_against_the_largest_allowed_in_bits() -> None:
    rules = {"b": BenchmarkRules(max_drop=0.05)}
    found = gate(
        bits(1.10, 1.12, checkpoint="new"),
        old=(bits(1.0, 1.0),),
        metrics=("bits_per_byte",),
        benchmarks=rules,
    )
    assert not missing(" ".join(found.lines[0].fails), "0.1100 bits", "max_drop is 0.05")


def test_a_unit_without_a_margin_is_a_mistake_and_no_verdict_where_nothing_is_decided() -> None:
    pair = bits(1.0, 1.0, checkpoint="new", name="log_odds"), bits(1.1, 1.2, name="log_odds")
    with pytest.raises(GateError, match=r"b log_odds .*nats, .*margin"):
        gate(pair[0], old=pair[1:], metrics=("log_odds",))
    (line,) = gate(pair[0], old=pair[1:], metrics=("log_odds",), mode=None).lines
    assert (line.comparison.verdict, line.kind) == (None, "no baseline")
    assert line.comparison.why.startswith("b log_odds is in nats")


def soft(name: str, temperature: float | None, *columns: str) -> BenchmarkScores:
    scores = {"acc": right(20, 40)} | {column: [0.3, 0.6] * 20 for column in columns}
    return entry(scores, checkpoint=name, began=float(name == "new"), temperature=temperature)


def test_results_without_a_soft_score_or_at_another_temperature_are_no_baseline_by_it_alone() -> None:
    mine = soft("new", 0.1, "p_right")
    for before, said in (
        (
            soft("old", 0.2, "p_right"),
            "old in run-old has p_right at temperature 0.2, not 0.1: `touchstone score",
        ),
        (soft("old", None), "old in run-old has no p_right: `touchstone score run-old -o FOLDER`"),
    ):
        (line,) = gate(mine, old=(before,), metrics=("p_right",)).lines
        assert line.invalid[0].startswith(said)
        assert gate(mine, old=(before,)).exit_code == 0
    known = soft("first", 0.1, "p_right")
    (line,) = gate(mine, old=(soft("old", 0.2, "p_right"), known), metrics=("p_right",)).lines
    assert line.against is not None
    assert line.against.checkpoint == "first"


def test_the_pooled_verdict_names_what_it_lacks_and_says_where_there_is_none() -> None:
    plan = GateConfig(mode="plain", pooled=True)
    mine = [new(300, name) for name in ("b1", "b2", "b3")]
    both = decide(cases_of(mine, []), source(old(300, "b1"), old(300, "b2")), plan)
    (pooled,) = both.pooled
    assert pooled in both.lines
    assert not missing(" ".join(pooled.notes), "without b3")
    assert not [note for note in both.notes if "pooled" in note]
    apart = source(old(300, "b1", "one"), old(300, "b2", "other"))
    for decides in (True, False):
        found = decide(cases_of(mine, []), apart, GateConfig(mode="plain", pooled=decides))
        assert found.pooled == ()
        assert any("nothing is pooled" in note for note in found.notes) is decides


def test_what_all_items_together_tell_makes_a_reference_of_a_benchmark_that_is_inconclusive_alone() -> None:
    earlier = [old(200, name) for name in ("b", "c", "d", "e", "f", "g", "h")]
    scores = [0.0] * 18 + right(206, N - 18)  # 18 items lost, 24 gained
    entries = [
        entry(scores, checkpoint="new", benchmark=one.saved.benchmark, run_id="now", began=99.0)
        for one in earlier
    ]
    found = gate(*entries, old=tuple(earlier))
    assert set(kinds(found)) == {"inconclusive"}
    assert [line.kind for line in found.pooled] == ["better"]
    assert all(line.is_reference for line in found.lines)
    assert not any("stays the reference" in note for line in found.lines for note in line.notes)


def test_an_inconclusive_benchmark_alone_makes_no_reference_and_its_line_says_which_one_stays() -> None:
    scores = [0.0] * 18 + right(206, N - 18)
    found = gate(entry(scores, checkpoint="new", run_id="now", began=99.0), old=(old(200),))
    assert kinds(found) == ["inconclusive"]
    assert not found.lines[0].is_reference
    assert any("old stays the reference" in note for note in found.lines[0].notes)
