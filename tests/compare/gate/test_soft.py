"""A gate by the soft score sees a loss early, tests accuracy beside it, and is blind to the scale of logits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig, gate_config_of, metric_names
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.statistics.paired import signed_ranks
from tests.support.entries import entry, source
from tests.support.lines import missing

SOFT = GateConfig(mode="plain", metrics=metric_names(["soft"]))
DRAW = random.Random(3)
MARGINS = [DRAW.gauss(0.8, 2.0) for _ in range(200)]


def answered(margins: list[float], *, checkpoint: str = "old") -> BenchmarkScores:
    more: dict[str, Any] = {"run_id": "now", "began": 99.0} if checkpoint == "new" else {}
    right = [float(margin > 0) for margin in margins]
    return entry({"acc": right, "soft": signed_ranks(margins)}, checkpoint=checkpoint, **more)


def judged(margins: list[float], plan: GateConfig = SOFT) -> GateResult:
    return decide(cases_of([answered(margins, checkpoint="new")], []), source(answered(MARGINS)), plan)


def kinds(found: GateResult) -> list[tuple[str, str]]:
    return [(line.metric, line.kind) for line in found.lines]


def weaker(margin: float, place: int) -> float:
    """Every third right answer is barely right."""
    return 0.01 * margin if margin > 0 and place % 3 == 0 else margin


def test_a_loss_is_seen_that_right_and_wrong_do_not_show_and_said_to_have_changed_no_answer() -> None:
    found = judged([weaker(margin, place) for place, margin in enumerate(MARGINS)])
    assert kinds(found) == [("acc", "inconclusive"), ("soft", "worse")]
    assert [line.comparison.family for line in found.lines] == [2, 2]
    assert found.exit_code == 8
    assert not missing(found.lines[1].comparison.why, "no answer changed", "acc")


def test_a_verdict_by_accuracy_says_that_the_soft_score_fell() -> None:
    plain = GateConfig(mode="plain")
    fallen = judged([weaker(margin, place) for place, margin in enumerate(MARGINS)], plain)
    assert (kinds(fallen), fallen.exit_code) == ([("acc", "inconclusive")], 0)
    (note,) = fallen.lines[0].notes
    assert not missing(note, "soft, z")
    assert judged(MARGINS, plain).lines[0].notes == ()


@pytest.mark.parametrize("scale", [0.1, 1 / 1.5, 1.6, 30.0])
def test_another_scale_of_the_logits_is_no_difference(scale: float) -> None:
    found = judged([margin * scale for margin in MARGINS])
    assert [line.comparison.difference for line in found.lines] == [0.0, 0.0]
    assert found.exit_code == 0


def test_sharper_logits_do_not_hide_lost_answers() -> None:
    lost = [1.6 * (margin if place % 5 or margin < 0 else -margin) for place, margin in enumerate(MARGINS)]
    found = judged(lost)
    assert ("acc", "worse") in kinds(found)
    assert found.exit_code == 8


def test_accuracy_alone_can_fail_the_gate() -> None:
    found = judged([-0.001 if 0 < margin < 0.6 else margin for margin in MARGINS])
    assert found.lines[0].kind == "worse"
    assert found.exit_code == 8


def test_a_benchmark_without_choices_goes_by_its_primary_metric() -> None:
    new = [
        answered(MARGINS, checkpoint="new"),
        entry([1.0] * 9, checkpoint="new", benchmark="c", run_id="now", began=99.0),
    ]
    found = decide(cases_of(new, []), source(answered(MARGINS)), SOFT)
    assert [(line.benchmark, line.metric) for line in found.lines] == [
        ("b", "acc"),
        ("b", "soft"),
        ("c", "acc"),
    ]


def test_where_no_benchmark_has_choices_the_word_is_refused_by_name() -> None:
    new = entry([1.0] * 9, checkpoint="new", run_id="now", began=99.0)
    with pytest.raises(GateError, match=r"--eval-set gate_metric: soft .*choices"):
        decide(cases_of([new], []), source(), SOFT)


def test_the_largest_allowed_drop_is_one_of_the_primary_metric() -> None:
    rules = gate_config_of({"metric": "soft", "benchmarks": {"b": {"max_drop": 0.001}}}, "here")
    found = judged([weaker(margin, place) for place, margin in enumerate(MARGINS)], rules)
    assert [len(line.fails) for line in found.lines] == [0, 1]


def test_p_right_is_compared_by_the_score_that_no_scale_moves() -> None:
    plan = gate_config_of({"metric": "p_right", "benchmarks": {"b": {"metrics": ["soft", "acc"]}}}, "here")
    assert (plan.metrics, plan.rules_of("b").metrics) == (("soft",), ("soft", "acc"))
    assert plan.metrics_of("b", "acc", []) == ("acc", "soft")
