"""The names of lm-evaluation-harness for what the shipped benchmarks ask, and those of its metrics.

A name stands here where prompt, data and metric are the same, or where the benchmark's page says how they differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

TASKS: Final = {
    "ai2_arc": ("arc_easy", "arc_challenge"),
    "gsm8k": ("gsm8k",),
    "lambada": ("lambada",),
    "lambada_openai": ("lambada",),
    "minerva_math": ("math",),
    "minerva_math500": ("math",),
    "mmlu": ("mmlu",),
}
"""Our benchmarks by its names, where those are other ones."""

ELSE: Final = {"mmlu": "mmlu_stem"}
"""The benchmark that stands for another one where only that is there."""

PREFIXES: Final = {
    "minerva_math_": "math",
    "mmlu_": "mmlu",
}
"""The beginnings of the names of parts: ``mmlu_virology`` is the group ``virology`` of ``mmlu``."""

PARTS: Final = {
    "counting_and_prob": "Counting_&_Probability",
    "counting_and_probability": "Counting_&_Probability",
    "num_theory": "Number_Theory",
    "intermediate_algebra": "Intermediate_Algebra",
    **{name: name.title() for name in ("algebra", "geometry", "number_theory", "prealgebra", "precalc")},
    "precalc": "Precalculus",
    "precalculus": "Precalculus",
}
"""Our groups by its names of parts of MATH."""


def translated(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return what ``--eval-tasks`` takes for a task of lm-evaluation-harness: the name itself where one of the
    ``known`` benchmarks has it, or where it is none of its tasks."""
    if name in known:
        return (name,)
    if name in TASKS:
        return tuple(_there(one, known) for one in TASKS[name])
    for prefix, benchmark in PREFIXES.items():
        if name.startswith(prefix) and (part := name.removeprefix(prefix)):
            group = PARTS.get(part, part) if benchmark == "math" else part
            return (f"{_there(benchmark, known)}/{group}",)
    return (name,)


def _there(name: str, known: Collection[str]) -> str:
    return ELSE.get(name, name) if name not in known else name


def metrics_named(name: str, metrics: Iterable[str]) -> list[str]:
    """Return the metrics that a name means, ours or that of lm-evaluation-harness: ``exact_match`` is a family of ours,
    ``acc,none`` and ``pass_at_1`` are its ways to write."""
    plain = name.partition(",")[0].replace("pass_at_", "pass@")
    there = list(metrics)
    return [one for one in there if one == plain] or [one for one in there if one.startswith(f"{plain}_")]
