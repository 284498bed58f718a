"""The choice of benchmarks by name: ``--eval-tasks arc_easy,code,'ko_*',mmlu_stem/machine_learning,-mbpp``.

A term is a benchmark's name, a tag, or a pattern of names; ``NAME/GROUP`` takes a group of a benchmark alone, as does
the name that files of results have for a subject of MMLU (``mmlu_virology``). ``-`` before a term leaves out what it
names. ``NAME:bpb`` and ``NAME:contrast`` are forms of a benchmark (``metrics.solutions``), which only terms with a
colon mean. Some tags follow from what a benchmark asks, others are its own. With ``NAME 25-shot`` a benchmark has
that many few-shot examples. The name of a group of benchmarks stands for its terms. What is the name of a benchmark is
no tag.

The names of a file's benchmarks are read without running it.

Groups of benchmarks are lines of ``groups.toml`` beside the shipped benchmarks, or of the project's pyproject.toml,
which goes before it.

    [tool.touchstone.groups]
    nightly = "arc_challenge 25-shot, hellaswag 10-shot, gsm8k"

A line is what ``--eval-tasks`` takes, and may name other groups.

The names of lm-evaluation-harness, for its tasks and metrics, stand here where prompt, data and metric are those of the
shipped benchmark, or where the benchmark's page says how they differ.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

from pytest_touchstone.core.aggregation import is_of_samples
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import HUB
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.files import MOST_SETTINGS, project_table, read_regular, shipped_evals
from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Judge,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.core.text import join_choices, join_names, similar_names

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

TAGS: Final[Mapping[str, tuple[type[Request], ...]]] = {
    "causal": (Loglikelihood, RollingLoglikelihood, Generate),
    "masked": (FillMask, PseudoLoglikelihood),
    "scoring": (Loglikelihood, RollingLoglikelihood),
    "generation": (Generate,),
    "code": (RunProgram,),
    "judged": (Judge,),
}
"""The tags of benchmarks that ask for any of these."""

KnownBenchmark: TypeAlias = tuple[Benchmark, Sequence[str] | None]
"""A benchmark that there is, and its groups, None where they are not known."""

_TERM: Final = re.compile(r"(-?)((?!-)[^/]+?)(?:/(.+?))?(?:\s+(\d+)-shot)?", re.DOTALL)

_SUBJECTS: Final = frozenset(name for subjects in SUBJECTS.values() for name in subjects.split())

MOST_NAMES: Final = 3
"""Names that are suggested for one that is not known."""


def tags_of(spec: Benchmark) -> tuple[str, ...]:
    """Return the tags of a benchmark: those of its requests, then its own."""
    asked = (tag for tag, kinds in TAGS.items() if set(kinds) & set(spec.asks))
    return tuple(dict.fromkeys((*asked, *spec.tags)))


def declared_groups(spec: Benchmark, data: str | None) -> Sequence[str] | None:
    """Return the groups of a benchmark's rows without reading rows, None where unknown.

    ``data`` is the value of ``--eval-data``.
    """
    if spec.group is None and spec.subsets is None:
        return ()
    published = spec.published.rows if isinstance(spec.published.rows, Mapping) else None
    anybody = data not in (None, HUB) or spec.data.rows is not None
    return None if published is None or anybody else tuple(published)


@dataclass(frozen=True, slots=True)
class TaskPattern:
    """A comma-separated term of ``--eval-tasks``.

    It has patterns of a name and of a group; ``out`` excludes what they match. ``shots`` is the number of few-shot
    examples, None for the benchmark's own. ``tag``: the name may be that of a tag.
    """

    text: str
    name: str
    group: str | None
    out: bool
    shots: int | None = None
    tag: bool = True

    @property
    def of_form(self) -> bool:
        """Whether it may name a form of a benchmark, such as ``gsm8k:bpb``."""
        return ":" in self.name

    @property
    def subject(self) -> str | None:
        """The subject of MMLU that it is the name of, as a task."""
        subject = self.name.casefold().removeprefix("mmlu_")
        is_subject = self.group is None and self.name.casefold() == f"mmlu_{subject}" and subject in _SUBJECTS
        return subject if is_subject else None

    def names(self, spec: Benchmark) -> bool:
        """Return whether the term matches a benchmark or a group of it.

        A form of a benchmark is matched only by a term that names the form.
        """
        if spec.code.form_of is not None and not self.of_form:
            return False
        if self.subject is not None and spec.name == "mmlu":
            return True
        tags = tags_of(spec) if self.tag and self.group is None else ()
        return _matches(spec.name, self.name) or self.name.casefold() in map(str.casefold, tags)

    def takes(self, spec: Benchmark, group: str | None) -> bool:
        """Return whether the term matches the benchmark's items of a group."""
        if not self.names(spec):
            return False
        if self.subject is not None and spec.name == "mmlu":
            return group == self.subject
        return self.group is None or (group is not None and _matches(group, self.group))


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """The benchmarks that a run selects, all without terms.

    ``groups`` are the named groups of benchmarks.
    """

    terms: tuple[TaskPattern, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, texts: Iterable[str], groups: Mapping[str, str] | None = None, names: Iterable[str] = ()
    ) -> TaskSelection:
        """Parse the texts of an option that may be given several times.

        A term that equals one of the ``names`` of benchmarks is not a tag. Raises ``ValueError`` for an empty name, and
        for a group that names itself.
        """
        texts_by_group = {name.casefold(): text for name, text in (groups or {}).items()}
        exact = set(map(str.casefold, names))
        terms = (term for text in texts for term in _parse_terms(text, texts_by_group, ()))
        return cls(
            tuple(replace(term, tag=term.name.casefold() not in exact) for term in terms), groups or {}
        )

    def chosen(self, spec: Benchmark) -> bool:
        """Return whether any item of the benchmark may be selected."""
        within = [term for term in self.terms if not term.out]
        without = [term for term in self.terms if term.out and term.group is None and term.subject is None]
        unnamed = not within and spec.code.form_of is None
        return (unnamed or any(term.names(spec) for term in within)) and not any(
            term.names(spec) for term in without
        )

    def takes(self, spec: Benchmark, group: str | None) -> bool:
        """Return whether items of a group are selected."""
        within = [term for term in self.terms if not term.out]
        unnamed = not within and spec.code.form_of is None
        return (unnamed or any(term.takes(spec, group) for term in within)) and not any(
            term.takes(spec, group) for term in self.terms if term.out
        )

    def shots(self, spec: Benchmark) -> int | None:
        """Return the number of few-shot examples that a term sets for the benchmark."""
        named = (term for term in self.terms if term.shots is not None and not term.out)
        return next((term.shots for term in named if term.names(spec)), None)

    def unknown(self, benchmarks: Sequence[KnownBenchmark]) -> str | None:
        """Return the first fault of the terms against the known benchmarks, else None.

        That is a term that matches nothing, with a suggestion, or a benchmark to which two terms give different numbers
        of few-shot examples.
        """
        taken = {name.casefold() for spec, _ in benchmarks for name in (spec.name, *tags_of(spec))}
        for name in self.groups:
            if name.casefold() in taken:
                return f"the group of benchmarks {name!r} has the name of a benchmark or of a tag; rename it"
        for term in self.terms:
            if not any(_may_match(term, *benchmark) for benchmark in benchmarks):
                return (
                    f"invalid --eval-tasks {term.text!r}: {_no_match_message(term, benchmarks, self.groups)}"
                )
        for spec, _ in benchmarks:
            naming = [term for term in self.terms if not term.out and term.names(spec)]
            differing = {term.shots: term.text for term in naming if term.shots is not None}
            if len(differing) > 1:
                return (
                    f"invalid --eval-tasks {spec.name!r}: {' and '.join(differing.values())} are two numbers of "
                    "few-shot examples; a run has one for each benchmark: leave one out"
                )
        return None


def parse_tasks(text: str) -> str:
    """Return the option's text; raise ``ValueError`` for an empty name in it."""
    TaskSelection.of([text])
    return text


def _parse_terms(text: str, groups: Mapping[str, str], within: tuple[str, ...]) -> Iterator[TaskPattern]:
    """Yield the terms of a text; expand the names of groups of benchmarks.

    A group may follow ``-`` and precede a number of shots.
    """
    for term_text in map(str.strip, text.split(",")):
        match = _TERM.fullmatch(term_text)
        if match is None:
            raise ValueError("names, separated by commas")
        out, name, group, shots = match.groups()
        term = TaskPattern(term_text, name, group, bool(out), None if shots is None else int(shots))
        if group is not None or name.casefold() not in groups:
            yield term
            continue
        path = (*within, name.casefold())
        if path[-1] in within:
            raise ValueError(f"a group that does not name itself ({' -> '.join(path)})")
        for member in _parse_terms(groups[path[-1]], groups, path):
            if not (member.out and term.out):
                shots_of_member = member.shots if term.shots is None else term.shots
                yield replace(member, out=member.out or term.out, shots=shots_of_member)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.casefold(), pattern.casefold())


def _may_match(term: TaskPattern, spec: Benchmark, groups: Sequence[str] | None) -> bool:
    """Return whether a benchmark may have items that the term matches."""
    if groups is None or term.group is None:
        return term.names(spec)
    return any(term.takes(spec, group) for group in groups)


def _no_match_message(
    term: TaskPattern, benchmarks: Sequence[KnownBenchmark], groups: Iterable[str] = ()
) -> str:
    """Return what a term does not match, with the nearest names."""
    if term.name.startswith(LM_EVAL_PREFIX):
        return (
            "the file of its tasks, test_lm_eval.py, was not collected; `touchstone run --tasks` collects it"
        )
    wanted = (term.name if term.group is None else f"{term.name}/{term.group}").strip("*").casefold()
    here = [spec.name for spec, _ in benchmarks if term.names(spec)]
    subset_names = [f"{spec.name}/{group}" for spec, groups in benchmarks for group in groups or ()]
    if here:
        subset_names = [subset_name for subset_name in subset_names if subset_name.partition("/")[0] in here]
        what = (
            f"no such group in {join_names(here, 3)}"
            if subset_names
            else f"no groups in {join_names(here, 3)}"
        )
        return f"{what}{_suggest(wanted, subset_names, subset_names)}"
    names = [spec.name for spec, _ in benchmarks]
    tags = dict.fromkeys(tag for spec, _ in benchmarks for tag in tags_of(spec))
    near = [name for name in names if wanted in name.casefold()]
    suggestion = _suggest(wanted, near or [*names, *tags, *groups, *subset_names], names)
    return f"no such benchmark or tag{suggestion}"


def _suggest(wanted: str, likely: Sequence[str], there: Sequence[str]) -> str:
    """Suggest the nearest of the likely names, else list the existing ones."""
    near = [name for name in likely if wanted in name.casefold()] or similar_names(wanted, likely, MOST_NAMES)
    if near:
        return f"; did you mean {join_choices(near[:MOST_NAMES])}?"
    return f"; there are {join_names(there)} (`touchstone benchmarks` shows them)" if there else ""


# The benchmarks of a file, without running it


def benchmark_names_in(path: Path) -> Iterator[str]:
    """Yield the names of a file's benchmarks without running it; none if it is unreadable."""
    try:
        tree = ast.parse(read_regular(path, MOST_SETTINGS))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "benchmark":
            named = [argument.value for argument in node.keywords if argument.arg == "name"]
            name = next(iter((*node.args, *named)), None)
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value


@functools.cache
def shipped_names() -> frozenset[str]:
    """Return the names of the benchmarks that come with the package."""
    return frozenset(name for path in shipped_evals().glob("test_*.py") for name in benchmark_names_in(path))


# Groups of benchmarks


FILE: Final = "groups.toml"

TABLE: Final = "[tool.touchstone.groups]"


def task_groups(pyproject: Path) -> dict[str, str]:
    """Return the groups of benchmarks, the project's before the shipped ones.

    Raises ``OptionError`` naming the project's line that is wrong. A file that is not TOML is left to pytest to report.
    """
    known_groups = shipped_groups()
    table = project_table(pyproject, "groups", OptionError)
    for name, line in table.items():
        if not isinstance(line, str):
            raise OptionError(
                f'{pyproject.name}: {TABLE} {name} is {line!r}; expected a text such as "arc_easy 5-shot, gsm8k"'
            )
    known_groups |= table
    for name in table:
        try:
            TaskSelection.of([name], known_groups)
        except ValueError as error:
            raise OptionError(
                f"{pyproject.name}: invalid {TABLE} {name} {table[name]!r}: expected {error}"
            ) from None
    return known_groups


def shipped_groups() -> dict[str, str]:
    """Return the groups that ship with the program."""
    path = shipped_evals() / FILE
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


# Names of lm-evaluation-harness


LM_EVAL_PREFIX: Final = "lm_eval:"
"""The beginning of the names of benchmarks that are tasks of an installed lm-evaluation-harness."""

LM_EVAL_FILTERS: Final = {"none": "", "strict-match": "_strict", "flexible-extract": "_flexible"}
"""The endings of metrics by the name of the filter before them."""


def filtered_metric(metric: str, filtering: str) -> str:
    """Return our name of a metric of filtered answers: ``exact_match_strict`` for ``exact_match,strict-match``."""
    return metric + LM_EVAL_FILTERS.get(filtering, f"_{filtering}")


LM_EVAL_TASKS: Final = {
    "ai2_arc": ("arc_easy", "arc_challenge"),
    "lambada_openai": ("lambada",),
    "bbh_cot_fewshot": ("bbh",),
    "minerva_math": ("math_5000",),
    "minerva_math500": ("math",),
    "leaderboard_mmlu_pro": ("mmlu_pro_letters",),
    "kobest": tuple(f"kobest_{task}" for task in ("boolq", "copa", "hellaswag", "sentineg", "wic")),
    **{
        f"mmlu_{name}": tuple(f"mmlu/{subject}" for subject in subjects.split())
        for name, subjects in SUBJECTS.items()
    },
    **{
        f"mmlu_{name}_continuation": tuple(f"mmlu_continuation/{subject}" for subject in subjects.split())
        for name, subjects in SUBJECTS.items()
    },
    **{
        f"mmlu_{subject}_continuation": (f"mmlu_continuation/{subject}",)
        for subjects in SUBJECTS.values()
        for subject in subjects.split()
    },
}
"""Our benchmarks by lm-evaluation-harness's names, where those are other ones."""

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


def translate_task(name: str, benchmarks: Collection[str], *, theirs: bool = False) -> tuple[str, ...]:
    """Translate a task of lm-evaluation-harness to terms of ``--eval-tasks``.

    A name of one of our ``benchmarks``, or of no task, stays. A name that both have is ours, unless the caller says
    that it is ``theirs``.
    """
    if name in benchmarks and not (theirs and name in SHARED):
        return (name,)
    if name in LM_EVAL_TASKS:
        return LM_EVAL_TASKS[name]
    for prefix, benchmark in PREFIXES.items():
        if name.startswith(prefix) and (subset := name.removeprefix(prefix)):
            group = PARTS.get(subset, subset) if benchmark == "math_5000" else subset
            return (f"{benchmark}/{group}",)
    return (name,)


def task_difference(name: str, term: str) -> str | None:
    """Return how a term's rows differ from those of lm-evaluation-harness, else None."""
    if name in SHARED and term == name:
        return "lm-evaluation-harness has 19 subjects under this name, ours has 14"
    return None


def find_metrics(name: str, metrics: Iterable[str]) -> list[str]:
    """Return the metrics that a name means, ours or lm-evaluation-harness's.

    ``exact_match`` is a family of ours. ``acc,none``, ``pass_at_1`` and ``exact_match,maj@8`` (a filter that counts
    answers) are its spellings.
    """
    plain, _, by = name.replace("pass_at_", "pass@").partition(",")
    plain = by if is_of_samples(by) else plain
    names = list(metrics)
    same = [metric for metric in names if metric == plain]
    return same or [metric for metric in names if metric.startswith(f"{plain}_")]
