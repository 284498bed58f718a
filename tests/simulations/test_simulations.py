"""The simulations with few runs: bounds wide enough for their noise and narrow enough to fail without the rules.

To be quick they have fewer items than the published ones. Where that would cost power, as many fewer items change their
verdict, so that a difference has the same standard error: 0.15 / 2400 is 0.0625 / 1000.

``python -m simulations.gate`` and its two neighbours give the figures of docs/simulations.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.gate.config import BenchmarkRules, GateConfig
from pytest_touchstone.compare.gate.decide import decide
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.plugin import expectation, gate
from simulations import aggregates, best, contest, engines, exact, forecast, gates, planned
from simulations import gate as simulate_gate
from simulations import intervals as simulate_intervals
from simulations import selection as simulate_selection
from simulations import sequential as simulate_sequential
from simulations import series as simulate_series
from simulations import skewed as simulate_skewed
from simulations.gate import ACCURACIES, SIZES, SUBJECTS

SMALLER = tuple(size // 4 for size in SIZES)
SHORT, FLIPS = (1000,) * 3, 0.0625


@pytest.mark.slow
def test_a_checkpoint_compared_with_itself_passes_the_gate() -> None:
    """At most 2.5 % fail; 400 runs with 5 % would give up to 29 with chance 0.98, without correction about 50."""
    found = simulate_gate.rates(simulate_gate.same_twice(400, 1, SMALLER, ACCURACIES))
    assert found.failed <= 20 / 400
    assert found.uncorrected_p > 0.08


@pytest.mark.slow
def test_many_small_benchmarks_do_not_make_it_fail_though_uncorrected_limits_would() -> None:
    found = simulate_gate.rates(simulate_gate.same_twice(400, 2, *(part[:12] for part in SUBJECTS)))
    assert found.failed <= 20 / 400
    assert found.uncorrected_limit > 0.12


@pytest.mark.slow
def test_items_that_share_a_text_do_not_make_it_fail() -> None:
    found = simulate_gate.rates(simulate_gate.same_twice_with_texts(40, 3))
    assert found.failed <= 4 / 40


@pytest.mark.slow
def test_a_drop_of_three_points_is_caught_among_three_benchmarks() -> None:
    """90 % are; 0.87 is more than two standard errors of 500 runs below."""
    found = simulate_gate.rates(simulate_gate.one_drop(500, 4))
    assert found.failed >= 0.87


@pytest.mark.slow
def test_a_checkpoint_that_is_known_for_itself_on_some_benchmarks_passes_the_gate() -> None:
    found = simulate_gate.rates(simulate_gate.same_twice(100, 5, SMALLER, identical=5))
    assert found.failed <= 8 / 100


def test_every_simulated_gate_is_decided_by_the_function_that_ends_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gate that always fails, put in the place of the product's, makes every simulation say so."""
    assert vars(gates)["decide"] is vars(gate)["decide"] is decide
    assert vars(simulate_sequential)["SequentialMonitor"] is vars(gate)["SequentialMonitor"]

    def worse(line: BenchmarkComparison) -> BenchmarkComparison:
        return replace(line, fails=("by decree",), comparison=replace(line.comparison, verdict="worse"))

    def strictest(*arguments: Any) -> GateResult:
        found = decide(*arguments)
        return replace(
            found,
            lines=tuple(worse(line) for line in found.lines),
        )

    monkeypatch.setattr(gates, "decide", strictest)
    assert simulate_gate.rates(simulate_gate.same_twice(2, 1, [50], [0.5])).failed == 1
    assert simulate_gate.rates(simulate_gate.one_drop(2, 1, 0.0)).failed == 1
    assert simulate_selection.gates(2, 1, [(50, 0.5)], simulate_selection.EQUAL, [0.0]).failed == 1
    looked = simulate_sequential.gates(2, 1, [50], [0.0])
    assert (looked.failed, looked.failed_at_end) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "least", "largest"), [(0.05, 0.02, 0.6), (0.5, 0.0, 0.06)])
def test_the_largest_drop_allowed_is_part_of_what_is_simulated(
    most: float, least: float, largest: float
) -> None:
    """A drop of 5 points by chance is no rarity on the small ones of ten benchmarks."""
    plan = GateConfig(
        mode="plain", benchmarks={f"bench{place}": BenchmarkRules(max_drop=most) for place in range(10)}
    )
    found = simulate_gate.rates(simulate_gate.same_twice(60, 6, plan=plan))
    assert least <= found.failed <= largest


@pytest.mark.slow
def test_a_checkpoint_as_good_as_the_best_of_eleven_passes_the_gate() -> None:
    found = simulate_selection.gates(80, 1, [(1200, 0.6)] * 2, simulate_selection.EQUAL, (0.0,) * 2)
    assert found.failed <= 5 / 80
    assert found.failed_plain > 0.1
    assert found.excess > 1.0
    assert abs(found.excess_shrunk) < 0.5


@pytest.mark.slow
def test_a_drop_below_the_best_of_eleven_is_caught() -> None:
    found = simulate_selection.gates(40, 2, [(2400, 0.6)] * 2, simulate_selection.EQUAL, (-0.05, 0.0))
    assert found.failed >= 0.9


@pytest.mark.slow
def test_interim_analyses_save_items_and_fail_no_more_often() -> None:
    found = simulate_sequential.gates(150, 1, SHORT, (0.0,) * 3, flips=FLIPS)
    assert found.failed <= 9 / 150
    assert found.saved >= 0.3


@pytest.mark.slow
def test_interim_analyses_stop_soon_where_the_drop_is_large() -> None:
    found = simulate_sequential.gates(100, 2, SHORT, (0.05, 0.0, 0.0), flips=FLIPS)
    assert found.failed >= 0.97
    assert found.saved >= 0.3


@pytest.mark.slow
def test_interim_analyses_catch_a_drop_of_three_points_as_the_whole_does() -> None:
    found = simulate_sequential.gates(150, 3, SHORT, (0.03, 0.0, 0.0), flips=FLIPS)
    assert found.failed >= found.failed_at_end - 0.04
    assert found.failed >= 0.84


@pytest.mark.slow
def test_interim_analyses_seldom_call_a_loss_of_the_margin_not_worse() -> None:
    found = simulate_sequential.gates(50, 4, (3200,) * 3, (0.01,) * 3, flips=0.02, strict=True)
    assert found.not_worse <= 0.05


@pytest.mark.parametrize(
    "name",
    [
        "pass@10 of 20, beta(3, 0.5), n = 40",
        "pass@100 of 200, beta(2, 0.4), n = 164",
        "one in 50 at 0, n = 40",
        "skewed, beta(0.5, 5), n = 30",
        "20 clusters, beta(0.5, 5)",
        "macro F1, 0.95/0.05, n = 50",
        "macro F1, 0.9/0.1, n = 100",
        "kappa, 0.5 of one class, right 0.95, n = 100",
    ],
)
def test_intervals_of_skewed_scores_hold_the_true_value(name: str) -> None:
    """Of 400 intervals of 95 %, fewer than 93 % hold it with chance 0.03."""
    assert simulate_intervals.simulations(400, 9)[name]().covered >= 0.93


@pytest.mark.parametrize("name", ["5 % gain 0.4, 100", "lognormal, of no known range, 50"])
def test_skewed_differences_are_called_worse_by_t_alone(name: str) -> None:
    """Of 200 equal pairs, at most 2.5 % are; more than 10 are with chance 0.01."""
    found = simulate_skewed.simulations(200, 5)[name]()
    assert max(found.worse, found.better) <= 10 / 200 < found.worse_by_t


def test_a_loss_of_graded_scores_is_still_found() -> None:
    found = simulate_skewed.simulations(100, 6)["lose, normal 0.3, 200"]()
    assert found.worse >= 0.55


@pytest.mark.slow
def test_the_enumerated_share_of_gates_that_fail_is_the_simulated_one() -> None:
    drops = (0.0, 0.0, 0.0)
    exactly = exact.at_end(300, (0.08, 0.0, 0.0), 0.15)
    found = simulate_sequential.gates(200, 11, (300,) * 3, (0.08, 0.0, 0.0))
    assert abs(found.failed_at_end - exactly) < 4 * (exactly * (1 - exactly) / 200) ** 0.5
    assert exact.at_end(300, drops, 0.15) <= 0.025
    each = [exact.with_analyses(300, drop, 0.15, 3) for drop in (0.08, 0.0, 0.0)]
    fails = 1 - math.prod(1 - worse for worse, _ in each)
    assert abs(found.failed - fails) < 4 * (fails * (1 - fails) / 200) ** 0.5
    assert abs(1 - found.saved - sum(asked for _, asked in each) / 3) < 0.04


def test_a_plan_predicts_what_the_shipped_gate_does() -> None:
    """Within four standard errors of the simulation, where one benchmark loses."""
    for one in planned.check(250, 21, (300,) * 3, 0.15, (0.08, 0.0, 0.0)):
        assert abs(one.z) < 4, one


@pytest.mark.slow
def test_plans_of_many_kinds_predict_what_the_shipped_gate_does() -> None:
    runs = 400
    found = [
        *planned.check(runs, 22, (2400,) * 3, 0.15, (0.03, 0.0, 0.0)),
        *planned.check(runs, 23, (400,) * 6, 0.2, (0.03,) * 6)[1:],
        *planned.check(runs, 24, (8000,), 0.05, (0.0,)),
    ]
    assert all(abs(one.z) < 4 for one in found), found
    worse, *_ = planned.check_best(runs, 25, 2400, 0.6, 0.03)  # against the best of several more is found
    assert worse.measured > worse.predicted - 0.03, worse


def test_the_rules_of_the_contest_differ_as_their_sources_say() -> None:
    tasks = [replace(task, n=task.n // 4) for task in contest.TEN[:6]]
    equal, lost = (contest.contest(30, 1, tasks, loss, everywhere=True) for loss in (0.0, 0.15))
    assert equal["a point"]["fails"] > 20
    assert equal["NeMo, text"]["fails"] > 20
    assert equal["NeMo, code"]["cannot tell"] > 20
    assert equal["ours"]["fails"] <= 4
    assert equal["lm-eval z-test"]["cannot tell"] == equal["a point"]["cannot tell"] == 0
    assert all(lost[rule]["fails"] > 25 for rule in contest.RULES)


def test_nemos_relative_guard_looks_at_low_accuracies_only() -> None:
    (suite,) = contest.suites(1, 1, [contest.Task("low", 1000, 0.15, "critical", guarded=True)], 0.0, False)
    old, new = np.arange(1000) < 150, np.arange(1000) < 146
    assert contest.nemo_text(replace(suite, pairs=[(old, new)])) == "fails"  # 0.4 points are 2.7 % of 15
    assert (
        contest.nemo_text(
            replace(suite, pairs=[(old | (np.arange(1000) > 900), new | (np.arange(1000) > 900))])
        )
        == "passes"
    )


@pytest.mark.slow
def test_closing_matrices_of_equal_series_are_seldom_wrong_and_find_a_better_one() -> None:
    """Of 60 matrices with an error rate of 5 %, more than 7 would be wrong with chance 0.01."""
    assert simulate_series.matrices(60, 1, (5, 5, 5)).wrong <= 7 / 60
    assert simulate_series.matrices(20, 2, (5, 5), (0.12,) * 5).found >= 0.9


@pytest.mark.slow
def test_among_many_curves_seldom_one_is_told_that_does_not_drop_and_one_that_does_is_found() -> None:
    """Of 40 studies with an error rate of 5 %, more than 6 would be wrong with chance 0.01."""
    assert all(one.wrong <= 6 / 40 for one in simulate_series.curves(40, 3, 12).values())
    found = simulate_series.curves(1, 4, 200, (0.0, 0.0, 0.0, 0.0, -0.4))
    assert found["peak to last"].found == found["stability"].found == 1


def test_what_is_expected_of_the_best_is_near_the_truth_and_its_interval_holds_it() -> None:
    """95 % do; of 60 at least 53 with chance 0.99. Own intervals hold it in three quarters."""
    found = best.simulations(60, 1)["equal, 200 items"]()
    assert found.cover >= 53 / 60
    assert found.plain < 0.9
    assert found.high > 3
    assert abs(found.after) < 1.5


def test_forecasts_hold_where_the_beginning_shows_how_a_curve_moves_and_not_where_it_jumps() -> None:
    """95 % of random walks; of 200 at least 182 with chance 0.99. Lines through them are too sure."""
    wanted = forecast.simulated(200, 1)
    found = {name: forecast.rates(rule, wanted["walks, 12"]) for name, rule in forecast.RULES.items()}
    assert found["walk"].holds >= 182 / 200
    assert found["log"].holds < 0.93
    assert forecast.rates(forecast.RULES["walk"], wanted["jumps, 12"]).holds == 0


@pytest.mark.slow
def test_equal_runs_seldom_differ_by_macro_f1_and_a_class_that_is_lost_is_found() -> None:
    """At most 2.5 % are called worse; of 150 at most 9 with chance 0.99. 74 % of the losses are found."""
    for classes in (2, 4):
        for new in (aggregates.ALIKE, aggregates.otherwise(classes)):
            found = aggregates.rates(classes, 100, new, 150, 1)
            assert found.worse <= 9 / 150
            assert found.covered >= 135 / 150
    assert aggregates.rates(2, 300, aggregates.LOST, 60, 1).worse >= 0.55


def test_equal_engines_pass_where_a_fixed_threshold_fails_them() -> None:
    """At most 2 % of builds fail; of 160 more than 8 with chance 0.01."""
    for flips, kernel in ((0.1, False), (0.05, True)):
        failing = engines.failing(160, 1, 200, flips, kernel=kernel)
        assert failing["expect_like"] <= 8 / 160
        assert failing["a point"] > 0.1


def test_a_loss_of_an_engine_is_found_that_a_wide_threshold_lets_pass() -> None:
    failing = engines.failing(80, 2, 400, 0.05, loss=0.05)
    assert failing["expect_like"] > 0.7
    assert failing["vLLM, 8 points"] < 0.3


@pytest.mark.slow
def test_as_many_items_as_a_plan_names_find_a_loss_of_three_points() -> None:
    """90 %; of 160 builds fewer than 83 % with chance 0.01."""
    for flips in engines.FLIPS:
        assert min(engines.planned(160, 3, flips).values()) >= 0.83


def test_every_simulated_build_is_judged_by_the_function_that_expect_like_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert vars(engines)["judge_candidate"] is vars(expectation)["judge_candidate"]

    def always_worse(*_: Any, **__: Any) -> dict[str, Any]:
        return {"bench": SimpleNamespace(kind="worse")}

    monkeypatch.setattr(engines, "judge_candidate", always_worse)
    assert engines.failing(1, 1, 50, 0.0)["expect_like"] == 1


def test_noisy_servers_are_seldom_taken_for_another_model() -> None:
    """0.3 % at 20 % of other texts; of 2,000 more than 20 with chance 0.001."""
    noisy = engines.servers(2000, 1, 0.2)
    assert noisy["equal"] <= 20 / 2000
    assert noisy["another model"] > 0.8
    assert engines.servers(2000, 1, 0.05)["equal"] <= 2 / 2000
