"""The drill: two steps of a real checkpoint, far apart, as jobs of continuous integration would meet them."""

from __future__ import annotations

import pytest

from tests.support.places import ROOT
from tests.support.project import ALONE, gate_of

EARLY = "builtin:ko-mlm-tiny/mlm/checkpoint-25"
LATE = "builtin:ko-mlm-tiny/nouns/checkpoint-1200"
ITEMS = 100


def step(pytester: pytest.Pytester, checkpoint: str, run_id: str, *arguments: str) -> pytest.RunResult:
    """One job: a checkpoint on the first items of Real."""
    path = str(ROOT / "evals" / "test_real_coref.py")
    fixed = ("--eval-limit", str(ITEMS), "--eval-run-id", run_id, *ALONE, "-q")
    return pytester.runpytest(
        path, "--checkpoint", checkpoint, "--baseline", "best", "--gate", *fixed, *arguments
    )


@pytest.mark.slow
def test_the_later_step_passes_the_earlier_is_gated_out_by_real_at_1_and_one_item_less_fails_a_strict_gate(
    pytester: pytest.Pytester,
) -> None:
    assert step(pytester, EARLY, "first").ret == 0
    assert step(pytester, LATE, "late").ret == 0
    assert [line["verdict"] for line in gate_of(pytester.path, "late")["lines"]] == ["better"]
    worse = step(pytester, EARLY, "early")
    assert worse.ret == 8
    worse.stdout.fnmatch_lines(["gate failed (exit code 8):*"])
    (line,) = gate_of(pytester.path, "early")["lines"]
    assert (line["benchmark"], line["metric"], line["verdict"]) == ("real_coref", "real@1", "worse")
    assert line["against"]["checkpoint"] == "checkpoint-1200"
    assert line["high"] < -0.01
    assert line["p_adjusted"] < 0.01
    less = step(pytester, LATE, "less", "--eval-gate-mode", "strict", "-k", f"not real_coref/{ITEMS - 1}")
    assert less.ret == 8
    assert f"compared with nothing ({ITEMS - 1} of {ITEMS} items)" in gate_of(pytester.path, "less")["text"]
