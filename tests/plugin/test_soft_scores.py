"""A project's own choice benchmark has soft scores: in its files, with -v, in a gate, and from stored answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_touchstone.results.summary import load_summary
from tests.support.lines import missing
from tests.support.toys import score, told

BENCHMARK = """
from pytest_touchstone import Loglikelihood, benchmark
from pytest_touchstone.metrics import CHOICE_METRICS, ask_answers


@benchmark(
    "picks",
    version=1,
    rows=[{"q": f"{n}, then", "texts": [str(n + 1), "nothing", "a duck"]} for n in range(60)],
    asks=Loglikelihood,
    primary="acc_norm",
    metrics=(*CHOICE_METRICS, "bits_per_byte"),
)
def test_picks(example, fewshot):
    return (yield from ask_answers(fewshot, example["q"], example["texts"], 0))
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    (pytester.path / "test_picks.py").write_text(BENCHMARK)
    (pytester.path / "data").mkdir()
    return pytester.path


def test_files_have_soft_scores_and_a_report_of_one_screen_has_not(
    pytester: pytest.Pytester, project: Path
) -> None:
    first = score(pytester, 0, "first")
    assert first.returncode == 0, first.stdout
    assert "p_right" not in first.stdout
    assert "p_right" in told(project, "report", "first", "-v")
    assert ",p_right," in (project / "results/first/results.csv").read_text()
    metrics = load_summary(project / "results/first").results[0].metrics
    assert list(metrics)[:5] == ["acc_norm", "acc", "acc_bytes", "acc_tokens", "bits_per_byte"]
    assert all(metrics[name].n == 60 for name in ("p_right", "log_odds", "logprob_margin"))

    by_bits = score(pytester, 0, "bits", "--gate", "--eval-set", "gate_metric=bits_per_byte")
    assert by_bits.returncode == 0, by_bits.stdout
    assert "margin 0.01 bits of bits_per_byte," in by_bits.stdout
    by_odds = score(pytester, 0, "odds", "--gate", "--eval-set", "gate_metric=log_odds")
    assert by_odds.returncode == 4
    assert not missing(by_odds.stderr + by_odds.stdout, "picks log_odds", "nats", "give one: margin")
    assert not (project / "results/odds/summary.json").exists()

    # By another temperature p_right is another measure, which the stored answers give too; the soft score has none.
    text = (project / "test_picks.py").read_text()
    (project / "test_picks.py").write_text(text.replace("version=1,", "version=1, temperature=2.0,"))
    other = score(pytester, 0, "other", "--gate", "--eval-set", "gate_metric=soft")
    assert other.returncode == 0, other.stdout
    gate = load_summary(project / "results/other").gate or {}
    assert [line["metric"] for line in gate["lines"]] == ["acc_norm", "soft"]
    told(project, "score", "first", "-o", "again")
    [pair] = json.loads(
        told(project, "compare", "again", "other", "--metric", "p_right", "--format", "json")
    )["pairs"]
    assert pair["benchmarks"][0]["identical"]
