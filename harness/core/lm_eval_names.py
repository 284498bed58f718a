"""The names of lm-evaluation-harness for what the shipped benchmarks ask, and those of its metrics.

A name stands here where prompt, data and metric are the same, or where the benchmark's page says how they differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

SUBJECTS: Final = {
    "humanities": """formal_logic high_school_european_history high_school_us_history high_school_world_history
        international_law jurisprudence logical_fallacies moral_disputes moral_scenarios philosophy prehistory
        professional_law world_religions""",
    "social_sciences": """econometrics high_school_geography high_school_government_and_politics
        high_school_macroeconomics high_school_microeconomics high_school_psychology human_sexuality
        professional_psychology public_relations security_studies sociology us_foreign_policy""",
    "other": """business_ethics clinical_knowledge college_medicine global_facts human_aging management marketing
        medical_genetics miscellaneous nutrition professional_accounting professional_medicine virology""",
}
"""The subjects of its groups of MMLU."""

TASKS: Final = {
    "ai2_arc": ("arc_easy", "arc_challenge"),
    "lambada_openai": ("lambada",),
    "minerva_math": ("math",),
    "minerva_math500": ("math",),
    **{
        f"mmlu_{name}": tuple(f"mmlu/{one}" for one in subjects.split())
        for name, subjects in SUBJECTS.items()
    },
}
"""Our benchmarks by its names, where those are other ones."""

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
        return TASKS[name]
    for prefix, benchmark in PREFIXES.items():
        if name.startswith(prefix) and (part := name.removeprefix(prefix)):
            group = PARTS.get(part, part) if benchmark == "math" else part
            return (f"{benchmark}/{group}",)
    return (name,)


def metrics_named(name: str, metrics: Iterable[str]) -> list[str]:
    """Return the metrics that a name means, ours or that of lm-evaluation-harness: ``exact_match`` is a family of ours,
    ``acc,none`` and ``pass_at_1`` are its ways to write."""
    plain = name.partition(",")[0].replace("pass_at_", "pass@")
    there = list(metrics)
    return [one for one in there if one == plain] or [one for one in there if one.startswith(f"{plain}_")]
