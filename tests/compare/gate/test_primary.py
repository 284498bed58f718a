"""A gate by the probability of the right choice sees a loss early, and shows accuracy beside it."""

from __future__ import annotations

import random
from typing import Any

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig, gate_config_of, metric_names
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult
from tests.support.entries import entry, source

SOFT = GateConfig(mode="plain", metrics=metric_names(["soft"]))


def answered(lost: float, n: int = 200, *, checkpoint: str, seed: int = 1, flips: int = 0) -> BenchmarkScores:
    """A result with probabilities of the right choice; the first ``flips`` right answers are wrong."""
    draw = random.Random(0)
    sure = [draw.uniform(0.2, 0.9) for _ in range(n)]
    noise = random.Random(seed)
    right = [float(one > 0.5) for one in sure]
    for place in [place for place, one in enumerate(right) if one][:flips]:
        right[place] = 0.0
    moved = [min(1.0, max(0.0, one - lost + noise.gauss(0, 0.02))) for one in sure]
    more: dict[str, Any] = {"run_id": "now", "began": 99.0} if checkpoint == "new" else {}
    return entry({"acc": right, "p_right": moved}, checkpoint=checkpoint, **more)


def judged(new: BenchmarkScores, *old: BenchmarkScores, plan: GateConfig = SOFT) -> GateResult:
    return decide(cases_of([new], []), source(*old), plan)


def test_a_loss_is_seen_that_right_and_wrong_do_not_show() -> None:
    new, old = answered(0.03, checkpoint="new"), answered(0.0, checkpoint="old", seed=2)
    (line,) = judged(new, old).lines
    assert (line.kind, line.metric) == ("worse", "p_right")
    assert "acc +0.00 points" in line.why
    (hard,) = judged(new, old, plan=GateConfig(mode="plain")).lines
    assert hard.kind == "inconclusive"


def test_accuracy_that_moves_the_other_way_is_told() -> None:
    found = judged(answered(0.03, checkpoint="new"), answered(0.0, checkpoint="old", seed=2, flips=30))
    assert found.exit_code == 8
    (note,) = found.notes
    assert note.startswith("b: contradiction: p_right is worse, acc better")


def test_accuracy_alone_neither_fails_nor_excuses() -> None:
    found = judged(answered(0.0, checkpoint="new", flips=30), answered(0.0, checkpoint="old", seed=2))
    assert found.exit_code == 0
    assert "acc -15.00 points, p = " in found.lines[0].why


def test_the_worth_of_a_point_is_known_from_saved_checkpoints_only() -> None:
    def rate(count: int) -> str:
        olds = [
            answered(0.02 * place, checkpoint=f"old-{place}", seed=place, flips=4 * place)
            for place in range(count)
        ]
        return judged(answered(0.0, checkpoint="new", seed=9), *olds).lines[0].notes[-1]

    assert rate(2) == "one point of p_right in points of acc: not known, too few saved checkpoints"
    assert rate(5).startswith("one point of p_right is about 0.9") or rate(5).startswith(
        "one point of p_right is about 1"
    )
    assert rate(5).endswith("of acc, by 4 saved checkpoints")


def test_a_benchmark_without_choices_goes_by_its_primary_metric() -> None:
    new = [
        answered(0.0, checkpoint="new"),
        entry([1.0] * 9, checkpoint="new", benchmark="c", run_id="now", began=99.0),
    ]
    found = decide(cases_of(new, []), source(answered(0.0, checkpoint="old", seed=2)), SOFT)
    assert [(line.benchmark, line.metric) for line in found.lines] == [("b", "p_right"), ("c", "acc")]


def test_a_configuration_may_say_soft() -> None:
    plan = gate_config_of({"metric": "soft", "benchmarks": {"b": {"metrics": ["soft", "acc"]}}}, "here")
    assert (plan.metrics, plan.own("b").metrics) == (("p_right",), ("p_right", "acc"))
