"""The line of a checkpoint while its training goes on, and who is told of a worse one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_touchstone.compare.benchmark_comparison import Baseline, BenchmarkComparison
from pytest_touchstone.compare.gate.result import GateResult, gate_json
from pytest_touchstone.reports import alerts
from pytest_touchstone.reports.alerts import CheckpointAlert, checkpoint_alert, send_alert
from pytest_touchstone.results.summary import Summary
from pytest_touchstone.statistics.comparison import Comparison, VerdictKind
from tests.support.lines import missing
from tests.support.summaries import sample

FACTS = {
    "checkpoint": "runs/a/$(touch pwned)'\"; exit 3",
    "benchmark": "arc_easy",
    "verdict": "worse",
    "run": "r",
}
WORSE = CheckpointAlert(checkpoint="checkpoint-2", verdict="WORSE", worse=True, facts=FACTS)
OTHERS = {f"run-{step}": {"path": f"runs/a/checkpoint-{step}", "step": step} for step in (100, 900)}


def against(step: int, verdict: VerdictKind, fails: tuple[str, ...] = ()) -> Summary:
    """A run of step 500, and its verdict against that of another step."""
    comparison = Comparison(n=0, units=0, baseline=0.5, verdict=verdict)
    summary = sample(1, benchmarks=["winogrande"], faults=False)
    line = BenchmarkComparison(
        checkpoint="checkpoint-500",
        benchmark="winogrande",
        metric="acc",
        comparison=comparison,
        fails=fails,
        against=Baseline(
            checkpoint=f"checkpoint-{step}", run_id=f"run-{step}", step=step, as_measured=comparison
        ),
    )
    gate = GateResult(mode="plain", baseline="best", margin=0.01, alpha=0.05, lines=(line,))
    row = {**summary.checkpoints[0], "name": "checkpoint-500", "step": 500, "path": "runs/a/checkpoint-500"}
    return replace(summary, gate=gate_json(gate, ""), checkpoints=[row])


@pytest.mark.parametrize(
    ("step", "verdict", "fails", "worse", "said"),
    [
        (100, "worse", ("worse",), "checkpoint-500", "WORSE than checkpoint-100"),
        (100, "better", (), "", "better than checkpoint-100"),
        (100, "inconclusive", (), "", "unclear vs checkpoint-100"),
        (100, "not worse", (), "", "not worse than checkpoint-100"),
        (900, "worse", ("worse",), "", "below later checkpoint-900"),
        (900, "better", (), "checkpoint-900", "WORSE since: checkpoint-900"),
        (900, "worse", ("worse", "floor acc >= 0.6: it is 0.4"), "checkpoint-500", "below later"),
    ],
)
def test_a_training_got_worse_where_a_later_checkpoint_is_below_an_earlier_one(
    step: int, verdict: VerdictKind, fails: tuple[str, ...], worse: str, said: str
) -> None:
    found = checkpoint_alert(against(step, verdict, fails), OTHERS)
    assert said in found.verdict
    assert found.worse is bool(worse)
    assert found.gated
    assert not worse or found.facts["checkpoint"] == f"runs/a/{worse}"


def test_a_command_gets_names_as_variables_and_never_as_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = 'printf %s "$WATCH_CHECKPOINT $WATCH_BENCHMARK $WATCH_VERDICT" > told'
    assert list(send_alert(WORSE, [command], Path("stop"))) == []
    assert Path("told").read_text() == f"{FACTS['checkpoint']} arc_easy worse"
    assert Path("stop").read_text() == "checkpoint-2 WORSE\n"
    assert not Path("pwned").exists()


def test_a_command_that_fails_or_does_not_end_is_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(alerts, "COMMAND_SECONDS", 0.3)
    (tmp_path / "folder").mkdir()
    lines = list(send_alert(WORSE, ["exit 7", "sleep 60"], tmp_path / "folder"))
    assert lines[0].startswith("cannot write --stop-file")
    failed, slow = lines[1:]
    assert not missing(failed, "--on-worse CMD", "exit code 7")
    assert not missing(slow, "--on-worse CMD", "0.3 s", "killed")
