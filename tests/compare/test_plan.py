"""A plan before a run: where its designs are from, and what it says the gate could decide."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.baseline import best_first
from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import BenchmarkRules, GateConfig
from pytest_touchstone.compare.plan import GatePlan, PlannedBenchmark, make_plan, planned_benchmarks
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.reports.plan import plan_facts, render
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.statistics.power import (
    binary_design,
    items_for_not_worse,
    power_of_drop,
    smallest_drop,
)
from tests.support.entries import entry, source
from tests.support.lines import missing

PLAIN = GateConfig(mode="plain")


def answers(n: int, seed: int, lucky: float = 0.3) -> list[float]:
    """Right and wrong answers: the same half of the items is right always, and ``lucky`` of the others."""
    draw = np.random.default_rng(seed).random(n)
    return [float(place < n // 2 or one < lucky) for place, one in enumerate(draw)]


def series(
    benchmark: str, n: int = 400, count: int = 3, name: str | None = "runs/a", **more: Any
) -> list[BenchmarkScores]:
    """Checkpoints of one series, saved in another order than that of their steps."""
    found = []
    for place in range(count):
        one = entry(
            answers(n, place),
            checkpoint=f"step-{place}",
            benchmark=benchmark,
            run_id=f"run-{place}",
            began=10.0 - place,
            **more,
        )
        about = {} if name is None else {"series": name}
        found.append(replace(one, saved=replace(one.saved, step=place, checkpoint_info=about)))
    return found


def flips(one: BenchmarkScores, other: BenchmarkScores) -> int:
    a, b = (side.items.scores["acc"] for side in (one, other))
    return sum(x != y for x, y in zip(a, b, strict=True))


def plan(
    where: BaselineSource,
    targets: Sequence[PlannedBenchmark] | None = None,
    config: GateConfig = PLAIN,
    **more: Any,
) -> GatePlan:
    wanted = targets if targets is not None else planned_benchmarks(where, where, {}, config)
    return make_plan(wanted, where, where, config, **more)


def test_the_loss_to_detect_is_the_smallest_that_a_proof_caught_where_it_has_one() -> None:
    where = source(*series("a"), *series("b"))
    found = plan(where, effects={"b": {"acc": 0.1, "bits_per_byte": 0.02}, "other": {"acc": 0.5}})
    rows = {row.benchmark: row for row in found.rows}
    assert (rows["a"].drop, rows["b"].drop) == (0.02, 0.1)
    rule: dict[str, Any] = {"margin": 0.01, "alpha": 0.05}
    assert rows["b"].finds == pytest.approx(power_of_drop(rows["b"].design, 0.1, family=2, **rule))
    assert rows["b"].finds > rows["a"].finds
    assert "2 points (10 points)" in render(found, width=100, color=False)


def test_flips_are_those_of_neighbouring_checkpoints_of_a_series() -> None:
    found = series("b")
    (row,) = plan(source(*found)).rows
    shares = [(flips(*pair) + 0.5) / 401 for pair in ((found[0], found[1]), (found[1], found[2]))]
    assert row.design.flips == pytest.approx(np.mean(shares))
    assert not missing(row.basis, "measured", "2 pairs", "runs/a", "step-0 to step-2")
    assert not row.assumed
    assert (row.benchmark, row.metric, row.design.items) == ("b", "acc", 400)


def test_without_a_series_those_that_were_saved_one_after_the_other_are_compared() -> None:
    (row,) = plan(source(*series("b", count=2, name=None))).rows
    assert not missing(row.basis, "measured", "1 pair", "step-1 and step-0")


def test_a_baseline_from_elsewhere_makes_a_pair_with_what_is_saved_here() -> None:
    there, here = series("a", count=2)
    found = make_plan(
        [PlannedBenchmark(benchmark="a", items=0)],
        source(there, kind="run", name="main"),
        source(here),
        PLAIN,
    )
    (row,) = found.rows
    assert row.basis.startswith("measured: 1 pair")
    assert row.design.flips == pytest.approx((flips(there, here) + 0.5) / 401)


def test_results_on_other_items_or_asked_otherwise_are_no_pair() -> None:
    one, other = series("b", count=2)
    asked = replace(other, saved=replace(other.saved, conditions={**other.saved.conditions, "shots": 5}))
    (row,) = plan(source(one, asked)).rows
    assert row.assumed
    assert row.basis.startswith("assumed: ")


def served(*runs: list[float], reused: bool = False, **more: Any) -> list[BenchmarkScores]:
    """Runs of one served model, oldest first; the later ones may be of the first one's answers."""
    made = [entry(scores, run_id=f"run-{n}", began=float(n), **more) for n, scores in enumerate(runs)]
    about = {"served": {"model": "m"}}
    return [
        replace(
            one,
            saved=replace(
                one.saved,
                checkpoint_info=about,
                reused_from=["run-0"] if reused and one is not made[0] else [],
            ),
        )
        for one in made
    ]


def test_runs_of_one_served_model_tell_how_many_items_flip_by_themselves() -> None:
    runs = served(*(answers(400, seed, lucky=0.05) for seed in range(3)))
    (row,) = plan(source(*runs)).rows
    shares = [(flips(*pair) + 0.5) / 401 for pair in itertools.pairwise(runs)]
    assert row.design.flips == pytest.approx(np.mean(shares))
    assert not row.assumed
    assert not missing(row.basis, "measured", "2 pairs", "old")


def test_runs_of_a_checkpoint_that_is_not_served_or_of_the_same_answers_tell_no_noise() -> None:
    runs = [answers(400, seed) for seed in range(2)]
    local = [entry(scores, run_id=f"run-{n}", began=float(n)) for n, scores in enumerate(runs)]
    for saved in (local, served(*runs, reused=True)):
        (row,) = plan(source(*saved)).rows
        assert row.assumed
    (given,) = plan(source(*served(*runs)), flips=0.3).rows
    assert given.design.flips == pytest.approx(0.3)


def test_a_single_result_is_taken_to_correlate_by_half_with_another_one() -> None:
    (one,) = series("b", count=1)
    (row,) = plan(source(one)).rows
    share = one.saved.metrics["acc"].value
    assert share is not None
    assert row.design.flips == pytest.approx(share * (1 - share))
    assert not missing(row.basis, "like step-0", "correlation 1/2")
    graded = [0.1, 0.4, 0.9, 0.6] * 20
    (row,) = plan(source(entry(graded))).rows
    assert row.design.flips is None
    assert row.design.spread == pytest.approx(np.std(graded, ddof=1))


def test_a_benchmark_without_results_needs_its_size_and_says_what_is_assumed() -> None:
    none = BaselineSource(name="best", kind="best")
    (row,) = plan(none, [PlannedBenchmark(benchmark="new", items=500)]).rows
    assert row.design == binary_design(500, 0.15)
    assert not missing(row.basis, "assumed", "15 %")
    (row,) = plan(none, [PlannedBenchmark(benchmark="new", items=500)], flips=0.3).rows
    assert not missing(row.basis, "given", "30 %")
    with pytest.raises(GateError, match="--items NAME=N"):
        plan(none, [])
    unknown = plan(none, [PlannedBenchmark(benchmark="new", items=0)]).unknown
    assert list(unknown) == ["new"]
    assert "--items new=N" in unknown["new"]


def test_the_numbers_are_those_of_the_power_of_the_gate_over_all_benchmarks() -> None:
    where = source(*series("a"), *series("b", 900))
    run = replace(where, kind="run", saved=[one for one in where.saved if one.checkpoint == "step-2"])
    found = make_plan(planned_benchmarks(run, where, {}, PLAIN), run, where, PLAIN, drop=0.05)
    first, second, pooled = found.rows
    assert first.sees == smallest_drop(first.design, family=2)
    assert first.finds == power_of_drop(first.design, 0.05, family=2)
    assert first.items_for_not_worse == items_for_not_worse(first.design)
    assert (pooled.benchmark, pooled.design.items) == ("pooled", 1300)
    assert pooled.finds == power_of_drop(pooled.design, 0.05)  # a test of its own
    assert pooled.finds > second.finds


def test_the_plan_has_the_margins_metrics_and_limits_of_the_gate() -> None:
    both = {"acc": answers(300, 1), "other": [0.5, 0.25] * 150}
    config = replace(
        PLAIN, metrics=("acc", "other"), benchmarks={"b": BenchmarkRules(margin=0.03)}, alpha=0.1
    )
    found = plan(source(entry(both, benchmark="b"), entry(answers(300, 2), benchmark="c")), config=config)
    assert [(row.benchmark, row.metric, row.margin) for row in found.rows] == [
        ("b", "acc", 0.03),
        ("b", "other", 0.03),
        ("c", "acc", 0.01),
        ("pooled", "", 0.01),
    ]
    assert found.rows[2].finds == power_of_drop(found.rows[2].design, 0.02, family=3, alpha=0.1)
    assert found.rows[3].design.items == 600  # each benchmark once


def test_a_composite_that_the_gate_compares_is_a_row_and_one_more_test() -> None:
    parts = {"name": "sum", "parts": [[0.5, "a", "acc"], [0.2, "a", "other"], [0.3, "b", "acc"]]}

    def both(one: BenchmarkScores, shift: int) -> BenchmarkScores:
        right = one.items.scores["acc"]
        more = replace(one.items, scores={"acc": right, "other": right[shift:] + right[:shift]})
        metrics = one.saved.metrics | {"other": one.saved.metrics["acc"]}
        return replace(one, items=more, saved=replace(one.saved, metrics=metrics))

    found = [*(both(one, 7) for one in series("a", 300, 2)), *series("b", 900, 2)]
    found = [replace(one, saved=replace(one.saved, composites=[parts])) for one in found]
    config = replace(PLAIN, metrics=("sum",), benchmarks={"sum": BenchmarkRules(margin=0.02)})
    planned = plan(source(*found), config=config)
    first, second, whole, _ = planned.rows
    assert [(row.benchmark, row.metric, row.margin) for row in planned.rows[1:]] == [
        ("b", "acc", 0.01),
        ("sum", "composite", 0.02),
        ("pooled", "", 0.01),
    ]
    assert first.finds == power_of_drop(first.design, 0.02, family=3)
    assert second.finds == power_of_drop(second.design, 0.02, family=3)
    assert whole.design.items == 1200
    one, other = (
        0.5 * np.asarray(side.items.scores["acc"], float)
        + 0.2 * np.asarray(side.items.scores["other"], float)
        for side in found[:2]
    )
    variance = np.var(other - one, ddof=1) / 300 + 0.3**2 * second.design.spread**2 / 900
    assert whole.design.spread**2 / 1200 == pytest.approx(variance, rel=0.01)
    text = render(planned, width=80, color=False)
    assert "2 benchmarks and 1 composite" in " ".join(text.split())
    pooled = plan(source(*found), config=replace(config, pooled=True))
    assert pooled.rows[0].finds == power_of_drop(first.design, 0.02, family=4)
    alone = [
        one for one in planned_benchmarks(source(*found), source(*found), {}, config) if one.benchmark == "b"
    ]
    assert plan(source(*found), alone, config).unknown["sum"].startswith("it needs a,")


def test_all_items_are_those_that_the_pooled_verdict_takes_in() -> None:
    lower = {"errors": {"by": "mean", "of": "acc", "higher_is_better": False}}
    found = [*series("a"), *series("b", n=300)]
    turned = [
        replace(
            one,
            saved=replace(
                one.saved,
                primary="errors",
                aggregate=lower,
                metrics={**one.saved.metrics, "errors": one.saved.metrics["acc"]},
            ),
        )
        for one in series("c", n=500)
    ]
    for config in (PLAIN, replace(PLAIN, pooled=True)):
        alone, beside = (plan(source(*some), config=config) for some in (found, [*found, *turned]))
        assert beside.rows[-1].design.items == alone.rows[-1].design.items == 700


def test_a_benchmark_whose_scores_are_too_large_is_named_and_the_others_are_planned() -> None:
    huge = [entry([1e155, 1.0, 2.0], checkpoint=name, benchmark="huge", run_id=name) for name in "ab"]
    found = plan(source(*series("b"), *huge))
    assert [row.benchmark for row in found.rows] == ["b"]
    assert "too large" in found.unknown["huge"]


def test_clusters_and_a_smaller_number_of_items_are_in_the_design() -> None:
    clusters = [f"text {place // 4}" for place in range(400)]
    alike = [[float((place // 4 + seed) % 3 > 0) for place in range(400)] for seed in range(2)]
    pair = [entry(values, checkpoint=f"c{n}", clusters=clusters) for n, values in enumerate(alike)]
    (row,) = plan(source(*pair), [PlannedBenchmark(benchmark="b", items=100)]).rows
    assert row.design.effect > 3
    assert row.design.items == 100


def test_the_text_says_it_in_words_and_the_plain_data_in_shares() -> None:
    found = plan(source(*series("a"), *series("b", 900)))
    for width in (80, 100):
        text = render(found, width=width, color=False)
        assert max(map(len, text.splitlines())) <= width
        words = " ".join(text.split())
        assert not missing(words, "plan against best", "margin 1 point", "alpha 0.05", "2 benchmarks")
        assert not missing(words, "from a, b: measured", "2 pairs", "runs/a", "step-0 to step-2")
        assert f"{100 * (found.rows[1].sees or 0):.1f} points" in words
    plain = json.loads(json.dumps(plan_facts(found)))
    assert [row["items"] for row in plain["benchmarks"]] == [400, 900, 1300]
    assert plain["benchmarks"][0]["sees"] == found.rows[0].sees


@pytest.mark.parametrize(("drop", "why"), [(0.01, "equal to"), (0.005, "within")])
def test_a_drop_that_no_number_of_items_finds_is_said_to_be_so(drop: float, why: str) -> None:
    found = plan(source(*series("a")), drop=drop)
    words = " ".join(render(found, width=200, color=False).split())
    assert f"never the drop is {why} the margin," in words
    assert "10 million" not in words


def test_what_takes_more_items_than_there_are_cannot_be_told_with_this_set() -> None:
    text = render(plan(source(*series("a"), *series("b", 90_000))), width=80, color=False)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    told = re.findall(
        r"(\w+), ([^,:]+): it would take about ([\d,]+) items, and there are ([\d,]+): ([^:]+?) pooled", words
    )
    assert [(name, what, size) for name, what, _, size, _ in told] == [("a", "2 points", "400")]
    assert int(told[0][2].replace(",", "")) > 400
    assert not missing(told[0][4], "larger margin", "benchmarks")


def test_the_command_plans_for_saved_results_and_says_what_is_wrong_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for one in series("gsm8k"):
        ResultStore(tmp_path / "results").save(one.saved, one.items)
    assert main(["baseline", "plan", "--drop", "3", "--items", "arc=1000", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drop"] == 0.03
    assert [(row["benchmark"], row["items"], row["assumed"]) for row in found["benchmarks"]] == [
        ("gsm8k", 400, False),
        ("arc", 1000, True),
        ("pooled", 1400, True),
    ]
    assert main(["baseline", "plan", "gsm8k", "--baseline", "run-1"]) == 0
    assert "against run-1" in capsys.readouterr().out
    for arguments, told in (
        (["--drop", "0"], "invalid --drop '0': expected points above 0 and below 100"),
        (["--power", "2"], "invalid --power '2'"),
        (["--flips", "none"], "invalid --flips 'none'"),
        (["--margin", "x"], "invalid --margin 'x'"),
        (["gsmk"], "unknown benchmark 'gsmk'; did you mean 'gsm8k'?"),
        (["--output", "elsewhere"], "nothing to plan for"),
    ):
        assert main(["baseline", "plan", *arguments]) == 4
        (line,) = capsys.readouterr().err.splitlines()
        assert told in line


def test_a_trial_is_no_size_to_plan_for_unless_its_rows_are_others() -> None:
    whole = entry(answers(100, 1), checkpoint="main", began=1.0)
    trial = entry(answers(20, 2), checkpoint="trial", began=2.0, run_id="trial")
    (row,) = plan(source(whole, trial)).rows
    assert row.design.items == 100
    other = entry(answers(20, 2), checkpoint="new", began=3.0, run_id="new", conditions={"version": 2})
    (row,) = plan(source(whole, trial, other)).rows
    assert row.design.items == 20


def test_saved_results_are_listed_by_items_and_then_the_best_first() -> None:
    counts = {"trial": 4, "middling": 100, "best": 100}
    found = [entry(answers(n, place), checkpoint=name) for place, (name, n) in enumerate(counts.items())]
    found[2] = entry([1.0] * 100, checkpoint="best")
    assert [one.checkpoint for one in best_first([one.saved for one in found])] == [
        "best",
        "middling",
        "trial",
    ]


def test_a_metric_with_a_unit_is_planned_in_it_with_a_margin_for_each_point() -> None:
    drawn = np.random.default_rng(5)
    saved = [
        entry(
            {"acc": answers(400, place), "bits_per_byte": [*(1 + 0.1 * drawn.random(400))]},
            checkpoint=f"step-{place}",
            began=float(place),
        )
        for place in range(2)
    ]
    config = GateConfig(mode="plain", metrics=("acc", "bits_per_byte"))
    where = source(*saved)
    found = make_plan(planned_benchmarks(where, where, {}, config), where, where, config, drop=0.03)
    shares, bits = found.rows  # nothing to pool: one benchmark has shares
    assert (shares.unit, shares.drop, shares.margin) == ("points", 0.03, 0.01)
    assert (bits.unit, bits.margin) == ("bits", 0.01)
    assert bits.drop == pytest.approx(0.03)
    text = render(found, width=120, color=False)
    assert "margin 1 point, 0.01 bits" in text
    assert "3 points (0.03 bits)" in " ".join(text.split())
    assert bits.sees is not None
    assert f"{bits.sees:.4f} bits" in text


def test_nothing_is_planned_for_a_unit_without_a_margin() -> None:
    saved = [entry({"log_odds": [0.1, 0.5] * 20}, checkpoint=name) for name in ("a", "b")]
    where = source(*saved)
    found = make_plan(planned_benchmarks(where, where, {}, PLAIN), where, where, PLAIN)
    assert not found.rows
    assert not missing(found.unknown["b"], "log_odds", "nats", "margin")
