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
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import HUB
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.files import MOST_SETTINGS, project_table, read_regular, shipped_evals
from pytest_touchstone.core.lm_eval_names import SUBJECTS
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
from pytest_touchstone.core.text import alike, either, listed

TAGS: Final[Mapping[str, tuple[type[Request], ...]]] = {
    "causal": (Loglikelihood, RollingLoglikelihood, Generate),
    "masked": (FillMask, PseudoLoglikelihood),
    "scoring": (Loglikelihood, RollingLoglikelihood),
    "generation": (Generate,),
    "code": (RunProgram,),
    "judged": (Judge,),
}
"""The tags of benchmarks that ask for any of these."""

Known: TypeAlias = tuple[Benchmark, Sequence[str] | None]
"""A benchmark that there is, and its groups, None where they are not known."""

_TERM: Final = re.compile(r"(-?)((?!-)[^/]+?)(?:/(.+?))?(?:\s+(\d+)-shot)?", re.DOTALL)

_SUBJECTS: Final = frozenset(name for subjects in SUBJECTS.values() for name in subjects.split())

MOST_NAMES: Final = 3
"""Names that are suggested for one that is not known."""


def tags_of(spec: Benchmark) -> tuple[str, ...]:
    """Return the tags of a benchmark: those of what it asks, then its own."""
    asked = (tag for tag, kinds in TAGS.items() if set(kinds) & set(spec.asks))
    return tuple(dict.fromkeys((*asked, *spec.tags)))


def declared_groups(spec: Benchmark, data: str | None) -> Sequence[str] | None:
    """Return the groups of a benchmark's rows as far as they are known without reading any, else None; ``data`` is the
    value of ``--eval-data``."""
    if spec.group is None and spec.subsets is None:
        return ()
    published = spec.published.rows if isinstance(spec.published.rows, Mapping) else None
    anybody = data not in (None, HUB) or spec.data.rows is not None
    return None if published is None or anybody else tuple(published)


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the option: patterns of a name and of a group, whether it leaves out what they match, and the number
    of few-shot examples, None for the benchmark's own. ``tag``: whether the name may be that of a tag."""

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
        known = self.group is None and self.name.casefold() == f"mmlu_{subject}" and subject in _SUBJECTS
        return subject if known else None

    def names(self, spec: Benchmark) -> bool:
        """Return whether it is about this benchmark, or about a group of it; about a form of a benchmark only where it
        names the form."""
        if spec.form_of is not None and not self.of_form:
            return False
        if self.subject is not None and spec.name == "mmlu":
            return True
        tags = tags_of(spec) if self.tag and self.group is None else ()
        return _like(spec.name, self.name) or self.name.casefold() in map(str.casefold, tags)

    def takes(self, spec: Benchmark, group: str | None) -> bool:
        """Return whether it is about the benchmark's items of this group."""
        if not self.names(spec):
            return False
        if self.subject is not None and spec.name == "mmlu":
            return group == self.subject
        return self.group is None or (group is not None and _like(group, self.group))


@dataclass(frozen=True, slots=True)
class Tasks:
    """The benchmarks that a run is about: all of them where there is no term. ``groups`` are the known groups of
    benchmarks by name."""

    terms: tuple[Term, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, texts: Iterable[str], groups: Mapping[str, str] | None = None, names: Iterable[str] = ()
    ) -> Tasks:
        """Return the choice of an option that may be given several times; a term with one of the ``names`` of
        benchmarks means no tag. Raises ``ValueError`` for an empty name, and for a group that names itself."""
        known = {name.casefold(): text for name, text in (groups or {}).items()}
        exact = set(map(str.casefold, names))
        terms = (one for text in texts for one in _terms(text, known, ()))
        return cls(tuple(replace(one, tag=one.name.casefold() not in exact) for one in terms), groups or {})

    def chosen(self, spec: Benchmark) -> bool:
        """Return whether items of the benchmark may be asked."""
        within = [term for term in self.terms if not term.out]
        without = [term for term in self.terms if term.out and term.group is None and term.subject is None]
        unnamed = not within and spec.form_of is None
        return (unnamed or any(term.names(spec) for term in within)) and not any(
            term.names(spec) for term in without
        )

    def takes(self, spec: Benchmark, group: str | None) -> bool:
        """Return whether items of this group are asked."""
        within = [term for term in self.terms if not term.out]
        unnamed = not within and spec.form_of is None
        return (unnamed or any(term.takes(spec, group) for term in within)) and not any(
            term.takes(spec, group) for term in self.terms if term.out
        )

    def shots(self, spec: Benchmark) -> int | None:
        """Return the number of few-shot examples that a term gives the benchmark."""
        named = (term for term in self.terms if term.shots is not None and not term.out)
        return next((term.shots for term in named if term.names(spec)), None)

    def unknown(self, known: Sequence[Known]) -> str | None:
        """Return a line about the first term that names nothing, with what was probably meant; or about a benchmark
        that two terms give different numbers of few-shot examples."""
        taken = {name.casefold() for spec, _ in known for name in (spec.name, *tags_of(spec))}
        for name in self.groups:
            if name.casefold() in taken:
                return f"the group of benchmarks {name!r} has the name of a benchmark or of a tag; rename it"
        for term in self.terms:
            if not any(_has(term, *one) for one in known):
                return f"invalid --eval-tasks {term.text!r}: {_nothing(term, known, self.groups)}"
        for spec, _ in known:
            told = [term for term in self.terms if not term.out and term.names(spec)]
            differing = {term.shots: term.text for term in told if term.shots is not None}
            if len(differing) > 1:
                return (
                    f"invalid --eval-tasks {spec.name!r}: {' and '.join(differing.values())} are two numbers of "
                    "few-shot examples; a run has one for each benchmark: leave one out"
                )
        return None


def parse_tasks(text: str) -> str:
    """Return the option's text; raise ``ValueError`` for an empty name in it."""
    Tasks.of([text])
    return text


def _terms(text: str, groups: Mapping[str, str], within: tuple[str, ...]) -> Iterator[Term]:
    """Yield the terms of a text; the name of a group of benchmarks stands for its terms, also after ``-`` and
    before a number of shots."""
    for part in text.split(","):
        term = _term(part.strip())
        name = term.name.casefold()
        if term.group is not None or name not in groups:
            yield term
            continue
        if name in within:
            raise ValueError(f"a group that does not name itself ({' -> '.join([*within, name])})")
        for one in _terms(groups[name], groups, (*within, name)):
            if not (one.out and term.out):
                shots = one.shots if term.shots is None else term.shots
                yield replace(one, out=one.out or term.out, shots=shots)


def _term(text: str) -> Term:
    found = _TERM.fullmatch(text)
    if found is None:
        raise ValueError("names, separated by commas")
    out, name, group, shots = found.groups()
    return Term(text, name, group, bool(out), None if shots is None else int(shots))


def _like(name: str, pattern: str) -> bool:
    return fnmatchcase(name.casefold(), pattern.casefold())


def _has(term: Term, spec: Benchmark, groups: Sequence[str] | None) -> bool:
    """Return whether there may be items that the term is about."""
    if groups is None or term.group is None:
        return term.names(spec)
    return any(term.takes(spec, group) for group in groups)


def _nothing(term: Term, known: Sequence[Known], groups: Iterable[str] = ()) -> str:
    """Return what is not there, and the nearest names that are, or all."""
    wanted = (term.name if term.group is None else f"{term.name}/{term.group}").strip("*").casefold()
    here = [spec.name for spec, _ in known if term.names(spec)]
    parts = [f"{spec.name}/{group}" for spec, groups in known for group in groups or ()]
    if here:
        parts = [part for part in parts if part.partition("/")[0] in here]
        what = f"no such group in {listed(here, 3)}" if parts else f"no groups in {listed(here, 3)}"
        return f"{what}{_meant(wanted, parts, parts)}"
    names = [spec.name for spec, _ in known]
    tags = dict.fromkeys(tag for spec, _ in known for tag in tags_of(spec))
    near = [name for name in names if wanted in name.casefold()]
    said = _meant(wanted, near or [*names, *tags, *groups, *parts], names)
    return f"no such benchmark or tag{said}"


def _meant(wanted: str, likely: Sequence[str], there: Sequence[str]) -> str:
    """Return a question with the nearest of the likely names, else the names that there are."""
    near = [name for name in likely if wanted in name.casefold()] or alike(wanted, likely, MOST_NAMES)
    if near:
        return f"; did you mean {either(near[:MOST_NAMES])}?"
    return f"; there are {listed(there)} (`touchstone benchmarks` shows them)" if there else ""


# The benchmarks of a file, without running it


def declared_in(path: Path) -> Iterator[str]:
    """Yield the names of a file's benchmarks; none of a file that cannot be read."""
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
    return frozenset(name for path in shipped_evals().glob("test_*.py") for name in declared_in(path))


# Groups of benchmarks


FILE: Final = "groups.toml"

TABLE: Final = "[tool.touchstone.groups]"


def task_groups(pyproject: Path) -> dict[str, str]:
    """Return the known groups; raises ``OptionError`` naming the line of the project that is wrong. A file that is not
    TOML is left to pytest to report."""
    found = shipped_groups()
    table = project_table(pyproject, "groups", OptionError)
    for name, line in table.items():
        if not isinstance(line, str):
            raise OptionError(
                f'{pyproject.name}: {TABLE} {name} is {line!r}; expected a text such as "arc_easy 5-shot, gsm8k"'
            )
    found |= table
    for name in table:
        try:
            Tasks.of([name], found)
        except ValueError as error:
            raise OptionError(
                f"{pyproject.name}: invalid {TABLE} {name} {table[name]!r}: expected {error}"
            ) from None
    return found


def shipped_groups() -> dict[str, str]:
    """Return the groups that ship with the program."""
    path = shipped_evals() / FILE
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
