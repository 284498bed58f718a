"""``--eval-config FILE``, and the demonstration: which benchmarks a run asks, each with its own options.

    {"benchmarks": {"reasoning": {"enabled": true, "description": "", "tasks": ["arc_challenge", "hellaswag"]}},
     "tasks": {"arc_challenge": {"enabled": true, "tasks": ["arc_challenge"], "num_fewshot": 25, "batch_size": 8,
                                 "limit": null, "metrics": ["acc_norm"], "log_samples": true, "priority": "high",
                                 "timeout": 3600, "output_path": "results/arc", "description": ""}},
     "settings": {"checkpoint": ["runs/a"], "device": "cuda:0"}}

TOML has the same shape. An entry of ``benchmarks`` selects entries of ``tasks``, or names benchmarks itself, and may
have all options of a task too; without ``benchmarks`` all tasks are selected. A name is one of ours, of
lm-evaluation-harness, a tag or a pattern. ``settings`` are options of the run by their names. Keys that begin with
``_`` or ``$`` are comments.

The demonstration is what a run asks of the builtin checkpoints if neither a checkpoint nor a limit is given.
``demonstration.toml`` beside the shipped benchmarks has a table for each of them: its options, as if they had been
given for this benchmark alone, or the reason for which it is left out. The table ``"*"`` is for shipped benchmarks
without one of their own; other people's are asked whole.
"""

from __future__ import annotations

import functools
import json
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, ValidationError

from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.files import (
    MOST_SETTINGS,
    parse_json,
    parse_toml,
    read_regular,
    shipped_evals,
    shown_path,
)
from pytest_touchstone.core.reasoning import AUTO, delimiters_of, without_trace
from pytest_touchstone.core.requests import Generate, GenerateAnswer, Request
from pytest_touchstone.core.settings import ALL
from pytest_touchstone.core.tasks import TaskSelection, task_difference, translate_task
from pytest_touchstone.core.text import count, did_you_mean, join_choices, join_names

PRIORITIES: Final = ("high", "medium", "low")
"""The order in which benchmarks run."""

ROWS: Final = ("limit", "shots", "max_new_tokens")
"""The settings of a run that a benchmark may have for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions:
    """The options of one benchmark, in place of the run's.

    The run's are ``--eval-limit``, ``--eval-shots`` and ``--eval-max-new-tokens``.

    ``left_out`` is the reason for which the benchmark is not asked at all. ``seconds`` is the time after which its
    items end as ``timeout``. Without ``samples`` the journal keeps neither prompts nor answers. ``metrics`` are those
    that the benchmark's own log shows (all for none), ``output_path`` is a further place for its results.
    ``think_end`` is the run's, ``judged_by`` who judges in it, and what is asked there, and ``texts_by`` who writes its
    texts, where this process does not.
    """

    limit: int | float | str | None = None
    shots: int | None = None
    max_new_tokens: int | None = None
    left_out: str = ""
    priority: str = "medium"
    seconds: float | None = None
    samples: bool = True
    metrics: tuple[str, ...] = ()
    output_path: str | None = None
    think_end: str = AUTO
    judged_by: str | None = None
    texts_by: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not the run's, as a manifest names them."""
        return {
            name: value
            for name in (*ROWS, "judged_by", "texts_by")
            if (value := getattr(self, name)) is not None
        }

    def without(self, names: Collection[str]) -> BenchmarkOptions:
        """Return the options without those that were given by hand for the whole run."""
        dropped: dict[str, Any] = dict.fromkeys(name for name in ROWS if name in names)
        return replace(self, **dropped)

    def request(self, request: Request) -> Request:
        """Return a request in the form that is sent to the engine."""
        if self.max_new_tokens is None or not isinstance(request, Generate):
            return request
        return replace(request, max_new_tokens=self.max_new_tokens, turns_max_new_tokens=None)

    def answer(self, answer: GenerateAnswer) -> GenerateAnswer:
        """Return an answer without the reasoning before it."""
        return without_trace(answer, delimiters_of(self.think_end))


AS_THE_RUN: Final = BenchmarkOptions()


# The file of ``--eval-config``


class TaskEntry(BaseModel):
    """An entry of ``tasks`` or ``benchmarks``."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool = True
    description: str = ""
    tasks: list[str] | None = None
    num_fewshot: Annotated[StrictInt, Field(ge=0)] | None = None
    batch_size: Annotated[StrictInt, Field(ge=1)] | Literal["auto"] | None = None
    limit: Annotated[StrictInt, Field(ge=1)] | Annotated[StrictFloat, Field(gt=0, lt=1)] | None = None
    metrics: list[str] = []
    log_samples: StrictBool = True
    priority: Literal["high", "medium", "low"] = "medium"
    timeout: Annotated[StrictInt | StrictFloat, Field(gt=0)] | None = None
    output_path: str | None = None


class EvalConfigFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    benchmarks: dict[str, TaskEntry] | None = None
    tasks: dict[str, TaskEntry] = {}
    settings: dict[str, Any] = {}


EXPECTED: Final = {
    "enabled": "true or false",
    "log_samples": "true or false",
    "description": "a text",
    "output_path": "a path",
    "tasks": 'a list of names, such as ["arc_easy"]',
    "metrics": 'a list of names, such as ["acc"]',
    "num_fewshot": "a whole number from 0 up",
    "batch_size": "a whole number from 1 up, or auto",
    "limit": "an item count (50), a fraction below 1 (0.2), or null for all",
    "priority": join_choices(("high", "medium", "low")),
    "timeout": "seconds above 0",
    "benchmarks": "a table of entries by name",
    "settings": "a table of options by name",
}
"""The values that keys have, in words."""


OFF: Final = "enabled is false"


@dataclass(frozen=True, slots=True)
class EnabledBenchmark:
    """A benchmark, or a group of it, that a file enables.

    ``where`` is the key in the file, ``written`` the name there, ``term`` its form for ``--eval-tasks``.
    """

    where: str
    written: str
    term: str
    entry: str
    asking: BenchmarkOptions
    batch: int | None = None

    @property
    def name(self) -> str:
        """The name, tag or pattern of benchmarks in its term."""
        return self.term.partition("/")[0]


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """A parsed file of ``--eval-config``.

    ``off`` has the disabled entries with the reason, ``unused`` their choices.
    """

    path: Path
    choices: tuple[EnabledBenchmark, ...]
    off: tuple[tuple[str, str], ...]
    settings: Mapping[str, Any]
    unused: tuple[EnabledBenchmark, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """The benchmarks that it enables, as ``--eval-tasks`` has them, each once."""
        return tuple(dict.fromkeys(choice.term for choice in self.choices))

    @property
    def batch(self) -> int | None:
        """The smallest batch size of its benchmarks: an engine has one for all, and it changes no score."""
        return min((choice.batch for choice in self.choices if choice.batch is not None), default=None)

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each name that means other rows in lm-evaluation-harness."""
        differences = ((choice, task_difference(choice.written, choice.term)) for choice in self.choices)
        return tuple(
            dict.fromkeys(f"{choice.where}: {choice.written}: {why}" for choice, why in differences if why)
        )

    def asking(self, spec: Benchmark) -> BenchmarkOptions:
        """Return the options of a benchmark; those by its name precede those by tag or pattern."""
        choices = [choice for choice in self.choices if TaskSelection.of([choice.term]).chosen(spec)]
        by_name = (choice for choice in choices if choice.name == spec.name)
        return next((choice.asking for choice in (*by_name, *choices)), AS_THE_RUN)

    def asking_named(self, name: str) -> BenchmarkOptions:
        """Return the options of a benchmark, given by name."""
        choices = [choice for choice in self.choices if fnmatchcase(name, choice.name)]
        by_name = (choice for choice in choices if choice.name == name)
        return next((choice.asking for choice in (*by_name, *choices)), AS_THE_RUN)


class ConfigFileError(OptionError):
    """An unusable file of ``--eval-config``; ``lines`` are all of its faults."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(lines)
        more = len(self.lines) - 1
        others = (
            f"; and {count(more, 'other fault')}: `touchstone benchmarks --config` names all" if more else ""
        )
        super().__init__(f"{self.lines[0]}{others}")


def read_eval_config(path: Path, benchmarks: Collection[str]) -> EvalConfig:
    """Read a file of ``--eval-config``; ``benchmarks`` are the names of existing benchmarks.

    Raises ``ConfigFileError``, which names every fault with its place, value and what was expected.
    """
    config, lines = validate_eval_config(path, benchmarks)
    if config is None or lines:
        raise ConfigFileError(lines)
    return config


def validate_eval_config(path: Path, benchmarks: Collection[str]) -> tuple[EvalConfig | None, list[str]]:
    """Read a file without its invalid values, and list its faults.

    The config is None where nothing valid is left.

    Raises ``ConfigFileError`` for a file that cannot be read.
    """
    shown = shown_path(path)
    tables = _without_comments(_load_tables(path))
    lines: list[str] = []
    try:
        file = EvalConfigFile.model_validate(tables)
    except ValidationError as error:
        faults = error.errors()
        lines = list(dict.fromkeys(f"{shown}: {_fault_line(dict(fault))}" for fault in faults))
        try:
            file = EvalConfigFile.model_validate(_drop_faulty(tables, [fault["loc"] for fault in faults]))
        except ValidationError:
            return None, lines
    entries = list(_resolve_entries(file, benchmarks))
    choices = tuple(dict.fromkeys(choice for _, why, enabled in entries if not why for choice in enabled))
    off = tuple(dict.fromkeys((where, why) for where, why, _ in entries if why))
    lines += [f"{shown}: {line}" for line in _conflicts(choices)]
    if not lines and not choices and (file.tasks or file.benchmarks):
        lines.append(f"{shown}: no benchmark is enabled; set enabled to true in one of its entries")
    chosen = {choice.where for choice in choices}
    unused = tuple(choice for _, _, enabled in entries for choice in enabled if choice.where not in chosen)
    return EvalConfig(path, choices, off, file.settings, unused), lines


def _drop_faulty(tables: Any, locations: Iterable[tuple[int | str, ...]]) -> Any:
    """Remove the values at the given locations from tables.

    A location may end in pydantic's name for a kind of value.
    """
    valid = deepcopy(tables)
    wrong: dict[tuple[int | str, ...], Any] = {}
    for location in locations:
        table, below, at = None, valid, 0
        while at < len(location) and isinstance(below, dict) and location[at] in below:
            table, below, at = below, below[location[at]], at + 1
        if table is not None:
            wrong[location[:at]] = table
    for path, table in wrong.items():
        table.pop(path[-1], None)
    return valid


def _load_tables(path: Path) -> Any:
    """Read the TOML or JSON of a file; raise ``ConfigFileError`` for one that cannot be read."""
    shown = shown_path(path)
    is_toml = path.suffix.lower() == ".toml"
    try:
        text = read_regular(path, MOST_SETTINGS).decode("utf-8-sig")
        return parse_toml(text) if is_toml else parse_json(text, object_pairs_hook=_refuse_duplicate_keys)
    except OSError as error:
        raise ConfigFileError([f"--eval-config: cannot read {shown}: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigFileError([f"--eval-config: cannot read {shown}: it is not UTF-8"]) from None
    except ValueError as error:
        raise ConfigFileError([f"{shown} is no {'TOML' if is_toml else 'JSON'}: {error}"]) from None


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"the key {name!r} stands twice in one place; leave one out")
        table[name] = value
    return table


def _without_comments(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: _without_comments(inner) for name, inner in value.items() if not name.startswith(("_", "$"))
    }


_KINDS_OF_VALUES: Final = ("constrained-", "literal[", "int", "float", "union[", "function-")
"""The beginnings of pydantic's names for one of several kinds of value, which are no part of a place."""


def _fault_line(error: dict[str, Any]) -> str:
    """Format a validation error as one line: key, value, and what was expected."""
    location = [
        step
        for step in error["loc"]
        if isinstance(step, int) or step in EXPECTED or not step.startswith(_KINDS_OF_VALUES)
    ]
    key = next((step for step in reversed(location) if isinstance(step, str)), "")
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    where = "".join(steps).lstrip(".") or "the file"
    if error["type"] == "extra_forbidden":
        keys = (TaskEntry if len(location) > 1 else EvalConfigFile).model_fields
        hint = did_you_mean(key, keys).strip() or f"known are {join_names(keys)}"
        return f"{where}: unknown key; {hint}"
    is_entry = len(location) == 2 and location[0] in ("benchmarks", "tasks")
    expected = "a table of options" if is_entry or not location else EXPECTED.get(key, error["msg"])
    if location == ["tasks"]:
        expected = EXPECTED["benchmarks"]
    return f"{where}: invalid {json.dumps(error['input'], default=str)[:60]}; expected {expected}"


def _resolve_entries(
    file: EvalConfigFile, benchmarks: Collection[str]
) -> Iterator[tuple[str, str, list[EnabledBenchmark]]]:
    """Yield each entry's key, the reason why it is off (else empty), and its choices."""
    used: set[str] = set()
    for name, entry in (file.benchmarks or {}).items():
        where = f"benchmarks.{name}"
        if not entry.enabled:
            yield where, OFF, []
        for number, task_name in enumerate([name] if entry.tasks is None else entry.tasks):
            used.add(task_name)
            if (task := file.tasks.get(task_name)) is None:
                task_where = where if entry.tasks is None else f"{where}.tasks[{number}]"
                yield (
                    where,
                    "" if entry.enabled else OFF,
                    _resolve_name(task_where, task_name, entry, benchmarks, task_name),
                )
            else:
                on = entry.enabled and task.enabled
                off = f"tasks.{task_name}" if entry.enabled else where
                yield off, "" if on else OFF, _resolve_task(task_name, task, entry, benchmarks)
    for name, entry in file.tasks.items():
        if name not in used:
            why = "" if entry.enabled else OFF
            if file.benchmarks is not None:
                why = "no entry of benchmarks selects it"
            yield f"tasks.{name}", why, _resolve_task(name, entry, None, benchmarks)


def _resolve_task(
    name: str, task: TaskEntry, above: TaskEntry | None, benchmarks: Collection[str]
) -> list[EnabledBenchmark]:
    """Return the choices of an entry of ``tasks``.

    Options that it lacks are inherited from the entry ``above`` it.
    """
    told = above.model_dump(exclude_unset=True) if above is not None else {}
    merged = TaskEntry(**{**told, **task.model_dump(exclude_unset=True), "tasks": task.tasks})
    if task.tasks is None:
        return _resolve_name(f"tasks.{name}", name, merged, benchmarks, name)
    places = ((f"tasks.{name}.tasks[{number}]", task_name) for number, task_name in enumerate(task.tasks))
    return [
        choice
        for where, task_name in places
        for choice in _resolve_name(where, task_name, merged, benchmarks, name)
    ]


def _resolve_name(
    where: str, name: str, entry: TaskEntry, benchmarks: Collection[str], label: str
) -> list[EnabledBenchmark]:
    limit = ALL if entry.limit is None and "limit" in entry.model_fields_set else entry.limit
    asking = BenchmarkOptions(
        limit=limit,
        shots=entry.num_fewshot,
        priority=entry.priority,
        seconds=entry.timeout,
        samples=entry.log_samples,
        metrics=tuple(entry.metrics),
        output_path=entry.output_path,
    )
    batch = entry.batch_size if isinstance(entry.batch_size, int) else None
    return [
        EnabledBenchmark(where, name, term, label, asking, batch) for term in translate_task(name, benchmarks)
    ]


def _conflicts(choices: Iterable[EnabledBenchmark]) -> list[str]:
    """List the keys that give a benchmark other options than an earlier key."""
    first: dict[str, EnabledBenchmark] = {}
    lines = []
    for choice in choices:
        before = first.setdefault(choice.name, choice)
        if before.asking != choice.asking:
            lines.append(
                f"{choice.where}: {choice.written!r} is asked as {choice.name}, which {before.where} gives other "
                "options; a benchmark has the same ones for all of its parts"
            )
    return lines


# The demonstration


FILE: Final = "demonstration.toml"

REST: Final = "*"
"""The table of the shipped benchmarks that have none of their own."""

EVERYTHING: Final = "--eval-limit all"
OWN: Final = "--checkpoint PATH"

LEFT_OUT: Final = "left out of the demonstration: "
"""The beginning of the reason for which a benchmark is left out, before that of the table."""

INCLUDED_WITH: Final = f"included with {EVERYTHING}"
"""The remedy there."""


def is_shipped(spec: Benchmark) -> bool:
    """Return whether a benchmark comes with this package.

    Shipped benchmarks run on the builtin checkpoints where no checkpoint is given.
    """
    return spec.code.folder.resolve() == shipped_evals()


def benchmark_options_of(spec: Benchmark) -> BenchmarkOptions:
    """Return the options of a benchmark in the demonstration."""
    if not is_shipped(spec):
        return AS_THE_RUN
    table = _load_demonstration(shipped_evals() / FILE)
    return table.get(spec.name, table.get(REST, AS_THE_RUN))


@functools.cache
def _load_demonstration(path: Path) -> Mapping[str, BenchmarkOptions]:
    if not path.is_file():
        return {}
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return MappingProxyType({name: BenchmarkOptions(**row) for name, row in rows.items()})


def config_summary(command: Sequence[str], settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Describe a demonstration for manifest and reports.

    ``what`` it is, and the commands for ``all`` rows and for a checkpoint of one's ``own``.

    ``command`` are the words of the command that was given, ``settings`` those of each benchmark.
    """
    call = shlex.join(command)
    texts = sorted(
        {conditions["limit"] for conditions in settings if conditions.keys() >= {"limit", "max_new_tokens"}}
    )
    rows = " to ".join(str(limit) for limit in dict.fromkeys((*texts[:1], *texts[-1:])))
    sizes = (
        f"{rows} rows of benchmarks that ask for texts, samples of the others"
        if rows
        else "samples of benchmarks"
    )
    return {
        "what": f"demonstration on the builtin checkpoints: {sizes}",
        "all": f"{call} {EVERYTHING}",
        "own": f"{call} {OWN}",
    }
