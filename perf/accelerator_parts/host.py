"""Host time: the CPU time of this process outside the model's operations.

A small model on a CPU stands in for one on a GPU, with passes as large as there. The *model* is what a GPU would do:
passes and sums over the vocabulary. *Calls* of Python's functions depend on no other process.
"""

from __future__ import annotations

import cProfile
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from perf.accelerator_parts import generate
from perf.accelerator_parts.budget import Budget
from perf.accelerator_parts.findings import Row
from perf.accelerator_parts.models import Setup, opened
from perf.accelerator_parts.score_items import begun, repeated
from perf.prompts import items_of
from pytest_touchstone.engines.transformers import causal, devices, logits, scoring
from pytest_touchstone.engines.transformers.generation import batch

PART = "host"
ROUNDS = 3

FIRST = 9
"""The tokens of each text that are written before steps are counted."""


def measure(setup: Setup, _budget: Budget) -> Iterator[Row]:
    """Yield microseconds for a request of ARC-Easy 5-shot, and for a step of 1, 32 and 256 rows."""
    if not setup.small:
        return
    spent = {"planning": 0.0, "model": 0.0, "prompts": 0.0}
    with ExitStack() as stack:
        for table, most in ((devices._MOST_TOKENS, 32_768), (batch._MOST_ROWS, 256)):
            stack.enter_context(patch.dict(table, cpu=most))
        for owner, name, part in (
            (logits.SelectiveLogits, "logits_at", "model"),
            (logits, "_log_sums", "model"),
            (scoring, "additive_mask", "model"),
            (causal.CausalEngine, "_plans", "planning"),
            (batch.PrefixGroup, "admit", "prompts"),
        ):
            stack.enter_context(patch.object(owner, name, _counted(getattr(owner, name), part, spent)))
        shape = setup.causal[0]
        engine = stack.enter_context(opened(shape, setup))
        items = repeated(items_of("arc_easy", data=setup.data, limit=128, shots=5)[:128], 256)
        asked = [[one for item in items for one in begun(item, f"{n}. ").requests] for n in range(ROUNDS + 1)]
        yield Row(PART, shape.name, "arc_easy, 5-shot, a request", figures=_spent(engine, asked, spent))
        for rows in (1, 32, 256):
            case, steps = generate.Case("gsm8k 5-shot", 1, rows), max(24, 512 // rows)
            texts = [
                [generate.requests(case, setup, f"# {n}\n", tokens) for n in range(ROUNDS + 1)]
                for tokens in (FIRST, FIRST + steps)
            ]
            short, long = (_spent(engine, some, spent, each=steps) for some in texts)
            figures = {name: long[name] - short[name] for name in long}
            yield Row(PART, shape.name, f"gsm8k 5-shot, a step of {rows} rows", figures=figures)


def _counted(right: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    kept: Any = None

    def counting(*arguments: Any, **more: Any) -> Any:
        nonlocal kept
        before, began = sum(spent.values()), time.process_time()
        kept = right(*arguments, **more)  # the former one's memory is freed here
        inner = sum(spent.values()) - before
        spent[part] += time.process_time() - began - inner
        return kept

    return counting


def _spent(
    engine: Any, rounds: list[list[Any]], spent: dict[str, float], each: int = 0
) -> dict[str, float | int]:
    """Return the medians of what the rounds take, by request or by step; the first one warms up."""
    found: dict[str, list[float]] = {}
    for requests in rounds:
        spent.update(dict.fromkeys(spent, 0.0))
        began = time.process_time()
        engine.answer(requests)
        whole = time.process_time() - began
        parts = {**spent, "rest": whole - sum(spent.values())}
        for name, seconds in parts.items():
            found.setdefault(f"{name}, us", []).append(1e6 * seconds / (each or len(requests)))
    profile = cProfile.Profile()
    profile.runcall(engine.answer, rounds[-1])
    calls = sum(one.callcount for one in profile.getstats())
    medians: dict[str, float | int] = {name: statistics.median(one[1:]) for name, one in found.items()}
    return {**medians, "calls of the main thread": calls / (each or len(rounds[-1]))}
