"""The names of lm-evaluation-harness for what the shipped benchmarks ask, and those of its metrics.

A name stands here where prompt, data and metric are the same, or where the benchmark's page says how they differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from pytest_touchstone.core.aggregation import is_of_samples

SUBJECTS: Final = {
    "stem": """abstract_algebra anatomy astronomy college_biology college_chemistry college_computer_science
        college_mathematics college_physics computer_security conceptual_physics electrical_engineering
        elementary_mathematics high_school_biology high_school_chemistry high_school_computer_science
        high_school_mathematics high_school_physics high_school_statistics machine_learning""",
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
    "bbh_cot_fewshot": ("bbh",),
    "minerva_math": ("math_5000",),
    "minerva_math500": ("math",),
    "leaderboard_mmlu_pro": ("mmlu_pro_letters",),
    "kobest": tuple(f"kobest_{task}" for task in ("boolq", "copa", "hellaswag", "sentineg", "wic")),
    **{
        f"mmlu_{name}": tuple(f"mmlu/{one}" for one in subjects.split())
        for name, subjects in SUBJECTS.items()
    },
    **{
        f"mmlu_{name}_continuation": tuple(f"mmlu_continuation/{one}" for one in subjects.split())
        for name, subjects in SUBJECTS.items()
    },
    **{
        f"mmlu_{one}_continuation": (f"mmlu_continuation/{one}",)
        for subjects in SUBJECTS.values()
        for one in subjects.split()
    },
}
"""Our benchmarks by its names, where those are other ones."""

PREFIXES: Final = {
    "minerva_math_": "math_5000",
    "bbh_cot_fewshot_": "bbh",
    "bbh_zeroshot_": "bbh_zeroshot",
    "mmlu_pro_": "mmlu_pro",
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

ZERO_SHOT: Final = ("mmlu", "mmlu_stem")
"""Our benchmarks that have few-shot examples, where its tasks have none by default."""

NEW_TOKENS: Final = {"minerva_math": 256, "minerva_math500": 256, "humaneval": 1024, "mbpp": 256}
"""The most new tokens of its tasks, where ours take another number."""

SHARED: Final = ("mmlu_stem",)
"""The names that both have, for different rows."""


def translated(name: str, known: Collection[str], *, theirs: bool = False) -> tuple[str, ...]:
    """Return what ``--eval-tasks`` takes for a task of lm-evaluation-harness: the name itself where one of the
    ``known`` benchmarks has it, or where it is none of its tasks. A name that both have is ours, unless it is known to
    be ``theirs``."""
    if name in known and not (theirs and name in SHARED):
        return (name,)
    if name in TASKS:
        return TASKS[name]
    for prefix, benchmark in PREFIXES.items():
        if name.startswith(prefix) and (part := name.removeprefix(prefix)):
            group = PARTS.get(part, part) if benchmark == "math_5000" else part
            return (f"{benchmark}/{group}",)
    return (name,)


def difference(name: str, term: str) -> str | None:
    """Return how what ``--eval-tasks`` takes for a name asks for other rows than lm-evaluation-harness has under it."""
    if name in SHARED and term == name:
        return "lm-evaluation-harness has 19 subjects under this name, ours has 14"
    return None


def metrics_named(name: str, metrics: Iterable[str]) -> list[str]:
    """Return the metrics that a name means, ours or that of lm-evaluation-harness: ``exact_match`` is a family of ours,
    ``acc,none``, ``pass_at_1`` and, of a filter that counts answers, ``exact_match,maj@8`` are its ways to write."""
    plain, _, by = name.replace("pass_at_", "pass@").partition(",")
    plain = by if is_of_samples(by) else plain
    there = list(metrics)
    return [one for one in there if one == plain] or [one for one in there if one.startswith(f"{plain}_")]
