"""lm-evaluation-harness as a peer: its ``HFLM`` with the same random weights, in a process of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perf.accelerator_parts.models import Setup, tokenizer_of
from perf.accelerator_parts.other_process import run_side
from perf.accelerator_parts.shapes import Shape
from pytest_touchstone.core.requests import Loglikelihood

START = 25.0
"""The seconds that are left for the process's start and its model."""


def least(setup: Setup) -> float:
    """Return the seconds to keep for ``scores``, 0 where lm_eval is not there."""
    if setup.lm_eval_python is None and find_spec("lm_eval") is None:
        return 0.0
    return (2 if setup.device.startswith("cuda") else 0.4) * START


def scores(
    shape: Shape, setup: Setup, asked: Mapping[str, Sequence[Loglikelihood]], seconds: float
) -> dict[str, tuple[float, list[float]]] | str:
    """Return by case the seconds and log-probabilities of the first requests, as many as fit into the time.

    Return the reason where there are none.
    """
    if shape.kind == "mtp":
        return "not there: lm_eval does not load this architecture"
    if setup.lm_eval_python is None and find_spec("lm_eval") is None:
        return "not there: lm_eval is not installed"
    if seconds < START / (5 if setup.small else 1):
        return "left out: no time"
    most = 32 if setup.small else 4096
    with tempfile.TemporaryDirectory(prefix="accelerator-") as name:
        folder = Path(name)
        tokenizer = tokenizer_of(shape.kind, setup.tokenizer)
        tokenizer.save_pretrained(folder)
        given: dict[str, Any] = {
            "model": [shape.kind, shape.model_type, dict(shape.config)],
            "how": {"dtype": setup.dtype, "device": setup.device},
            "known": int(max(tokenizer.get_vocab().values())) + 1,
            "tokenizer": str(folder),
            "length": shape.seq_len,
            "batch": 64 if setup.device.startswith("cuda") else 16,
            "seconds": max(1.0, seconds - START) / max(1, len(asked)),
            "asked": {
                case: [[one.context, one.continuation] for one in some[:most]] for case, some in asked.items()
            },
        }
        (folder / "asked.json").write_text(json.dumps(given), encoding="utf-8")
        module = "perf.accelerator_parts.lm_eval_scores"
        found: dict[str, tuple[float, list[float]]] | str = run_side(
            module, setup.lm_eval_python, folder, seconds + 60
        )
    return found
