"""Read the settings of a gate from ``[tool.touchstone.gate]``, and check that its benchmarks and metrics exist.

    [tool.touchstone.gate]
    mode = "plain"                # the meaning of --gate alone: plain, or strict (fails also if inconclusive)
    baseline = "best"             # like --baseline
    metric = "score"              # like the key gate_metric; several: metrics = ["real@1", "real@5"]; "soft" of choices
    margin = 0.01                 # a loss up to this does not fail: 0.01 is one point
    alpha = 0.05                  # chance of a false alarm over all benchmarks together, in either direction
    pooled = false                # true: the verdict on all items together may fail the gate too
    accepted = "FILE"             # the accepted drops, by default touchstone-accepted.json beside this file

    [tool.touchstone.gate.benchmarks.real_coref]
    metric = "real@1"             # compared by this metric instead of its primary one; or metrics = [...]
    margin = 0.02                 # replaces the general margin
    max_drop = 0.05               # fails at any larger measured drop, significant or not
    floors = ["real@1 >= 0.60"]   # fails below, whatever the baseline

margin, alpha, max_drop and the bounds of floors are shares: 0.05, or as a text "5%". A per cent is 0.01 of the
metric, that is one point; never a per cent of the baseline.

A file that gate_config names has the same tables, or the keys of [tool.touchstone.gate] at its top. An unknown key is
an error that suggests the nearest name.

Names of benchmarks and metrics are checked before anything runs, as far as possible. A floor on a share must lie
from 0 to 1. Composites are shares, and so are metrics by name (accuracies, exact matches, F1, pass@k and the like),
unless a saved value is below 0 or above 1.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Final, NoReturn

from pytest_touchstone.compare.gate.accepted import FILE, AcceptedDrop, read_accepted
from pytest_touchstone.core.aggregation import P_RIGHT, SOFT, Aggregation, aggregation_of
from pytest_touchstone.core.composite import Composite, composites_from_plain
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.files import read_toml, shown_path
from pytest_touchstone.core.tasks import benchmark_names_in
from pytest_touchstone.core.text import did_you_mean, join_names
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration, base_name
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, ROUNDING

MODES: Final = ("plain", "strict")
KEYS: Final = (
    *("mode", "baseline", "metric", "metrics", "allow", "margin", "alpha", "pooled"),
    *("accepted", "benchmarks"),
)
BENCHMARK_KEYS: Final = ("metric", "metrics", "margin", "max_drop", "floors")

TABLE: Final = "tool.touchstone.gate"

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
DIGITS: Final = 4
_FLOOR: Final = re.compile(
    r"\s*(?P<metric>\S+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>[-+]?\d*\.?\d+(e[-+]?\d+)?%?)\s*"
)
_NUMBER: Final = re.compile(r"([-+]?\d*\.?\d+(?:e[-+]?\d+)?)(%?)")


@dataclass(frozen=True, slots=True)
class Floor:
    """A bound for the value of a metric, such as ``real@1 >= 0.6``; ``percent`` if it was written as ``60%``."""

    metric: str
    sign: str
    bound: float
    percent: bool = False

    @property
    def text(self) -> str:
        """Return the bound as a person writes it."""
        return f"{self.metric} {self.sign} {self.bound:.12g}"

    def holds(self, value: float) -> bool:
        """Return whether the value keeps the bound; a miss within rounding error is allowed."""
        at_bound = math.isclose(value, self.bound, rel_tol=ROUNDING, abs_tol=ROUNDING)
        return OPERATORS[self.sign](self.bound if at_bound else value, self.bound)

    def shown(self, value: float) -> str:
        """Return the value with enough digits to differ from the bound."""
        digits = (n for n in range(DIGITS, 12) if f"{value:.{n}g}" != f"{self.bound:.{n}g}")
        return f"{value:.{next(digits, DIGITS)}g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """The rules for one benchmark; None or empty where the general ones apply."""

    metrics: tuple[str, ...] = ()
    margin: float | None = None
    max_drop: float | None = None
    floors: tuple[Floor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The settings of a gate; with ``mode`` None verdicts are shown and do not change the exit code."""

    mode: str | None = None
    baseline: str = "best"
    metrics: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    margin: float = MARGIN
    alpha: float = ALPHA
    pooled: bool = False
    sequential: bool = False
    benchmarks: Mapping[str, BenchmarkRules] = field(default_factory=dict)
    accepted_file: str = FILE
    accepted: tuple[AcceptedDrop, ...] = ()
    composites: tuple[Composite, ...] = ()
    """The composites of the run and of its baselines; no key of the configuration."""

    def composite_of(self, name: str) -> Composite | None:
        """Return the composite with this name, or None."""
        return next((composite for composite in self.composites if composite.name == name), None)

    @property
    def plain_metrics(self) -> list[str]:
        """Return the gate's metrics that are not composites."""
        return [name for name in self.metrics if self.composite_of(name) is None]

    def metrics_of(self, benchmark: str, primary: str, available: Iterable[str]) -> tuple[str, ...]:
        """Return the metrics by which a benchmark is compared.

        These are the metrics of its own rules, which ``available`` may lack, else those of the gate that it has, else
        the primary one. The soft score never comes without the primary one.
        """
        names = set(available)
        shared = tuple(name for name in self.metrics if name in names)
        named = self.rules_of(benchmark).metrics or shared or (primary,)
        return tuple(dict.fromkeys((primary, *named))) if SOFT in named else named

    def rules_of(self, benchmark: str) -> BenchmarkRules:
        """Return the rules for a benchmark; ``styled[polite]`` without rules has those of ``styled``."""
        return self.benchmarks.get(benchmark) or self.benchmarks.get(base_name(benchmark), BenchmarkRules())

    def margin_of(self, benchmark: str, metric: str, aggregation: Aggregation) -> float:
        """Return the margin for a metric: the benchmark's, else that of the metric's unit, else the general one.

        Raises ``GateError`` for a metric with a unit that declares no margin.
        """
        if (benchmark_margin := self.rules_of(benchmark).margin) is not None:
            return benchmark_margin
        if not aggregation.unit:
            return self.margin
        if aggregation.margin is None:
            raise GateError(
                f"{benchmark} {metric} is in {aggregation.unit}, for which there is no margin; give one: "
                f"margin = ... under [{TABLE}.benchmarks.{benchmark}]"
            )
        return aggregation.margin

    @property
    def floors(self) -> bool:
        """Return whether any metric has a bound to keep."""
        return any(rules.floors for rules in self.benchmarks.values())


def read_gate_config(path: Path, *, required: bool, root: Path | None = None) -> GateConfig:
    """Read the settings of a gate from a TOML file, with the accepted drops of the project.

    Args:
        path: The TOML file.
        required: Whether the file must exist and have a gate's table; otherwise the defaults stand in for them.
        root: The folder of the file of accepted drops; by default that of ``path``.

    Raises:
        GateError: Naming the file, the key and the value.

    """
    tables: Mapping[str, Any] = {}
    try:
        tables = read_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        if required or not isinstance(error, FileNotFoundError):
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise GateError(f"cannot read {shown_path(path)}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise GateError(f"{path} is no TOML: {error}") from None
    at_top = "tool" not in tables and required and path.name != "pyproject.toml"
    table = tables if at_top else _subtable(tables, TABLE.split("."), str(path))
    if required and not table:
        raise GateError(f"{path} has no [{TABLE}]; give a file that has one, or its keys at the top")
    config = gate_config_of(table, f"{path}" if at_top else f"{path}: [{TABLE}]")
    return replace(config, accepted=read_accepted((root or path.parent) / config.accepted_file))


def gate_config_of(table: Mapping[str, Any], where: str) -> GateConfig:
    """Parse the settings of a gate from a table; errors (``GateError``) begin with ``where``."""
    check_names(table, KEYS, where, "key")
    settings = {key: read(table, key, where) for key, read in _READERS.items() if key in table}
    if (mode := settings.get("mode", "plain")) not in MODES:
        raise GateError(f"{where}: {mode!r} is no mode; use {' or '.join(MODES)}")
    settings["metrics"] = _read_metrics(table, where)
    settings["accepted_file"] = settings.pop("accepted", FILE)
    tables = table.get("benchmarks", {})
    if not isinstance(tables, Mapping) or not all(isinstance(rules, Mapping) for rules in tables.values()):
        raise GateError(
            f"{where}: benchmarks is {tables!r}; give a table for each: [{TABLE}.benchmarks.NAME]"
        )
    settings["benchmarks"] = {
        name: _parse_rules(rules, f"{where}, benchmarks.{name}") for name, rules in tables.items()
    }
    return GateConfig(**settings)


def parse_floor(text: str, where: str) -> Floor:
    """Parse ``METRIC >= NUMBER``, with any of >=, >, <= and <; raises ``GateError``.

    The number is written as ``0.6`` or ``60%``.
    """
    match = _FLOOR.fullmatch(text)
    if match is None:
        raise GateError(
            f"{where}: {text!r} is no floor; write METRIC >= NUMBER, such as 'acc >= 0.6' or 'acc >= 60%'"
        )
    bound = number_of(match["bound"])
    if bound is None:
        raise GateError(f"{where}: {text!r} is no floor: its bound is too large")
    return Floor(match["metric"], match["sign"], bound, match["bound"].endswith("%"))


def number_of(text: str) -> float | None:
    """Parse a number, ``60%`` as 0.6; None for a text that is not a finite number."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    value = float(Decimal(match[1]) / 100) if match[2] else float(match[1])
    return value if math.isfinite(value) else None


def check_names(names: Iterable[str], available: Iterable[str], where: str, what: str) -> None:
    """Raise ``GateError`` for the first unknown name, with the nearest and the available ones."""
    known_names = list(available)
    for name in names:
        if name not in known_names:
            hint = did_you_mean(str(name), known_names)
            raise GateError(f"{where}: unknown {what} {name!r}; {hint}known are {join_names(available)}")


def _parse_rules(table: Mapping[str, Any], where: str) -> BenchmarkRules:
    check_names(table, BENCHMARK_KEYS, where, "key")
    settings = {key: read(table, key, where) for key, read in _READERS.items() if key in table}
    floors = tuple(parse_floor(text, where) for text in _read_texts(table, "floors", where))
    return BenchmarkRules(metrics=_read_metrics(table, where), floors=floors, **settings)


def _read_metrics(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the names in ``metric`` or ``metrics``."""
    if "metric" in table and "metrics" in table:
        raise GateError(f"{where}: both metric and metrics are given; leave metric out")
    if "metric" in table:
        return metric_names([_read_value(table, "metric", where)])
    names = _read_texts(table, "metrics", where)
    if "metrics" in table and not all(names or ("",)):
        raise GateError(f"{where}: metrics is {table['metrics']!r}; name at least one metric")
    return metric_names(names)


def metric_names(written: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics of a gate without duplicates, with the soft score in place of ``p_right``.

    A mere rescaling of the log-probabilities changes ``p_right``.
    """
    return tuple(dict.fromkeys(SOFT if name == P_RIGHT else name for name in written))


def _subtable(tables: Mapping[str, Any], names: Iterable[str], where: str) -> Mapping[str, Any]:
    for name in names:
        tables = tables.get(name, {})
        if not isinstance(tables, Mapping):
            raise GateError(f"{where}: {name} of [{TABLE}] is no table")
    return tables


def _read_value(
    table: Mapping[str, Any], key: str, where: str, kind: type[Any] = str, what: str = "a text"
) -> Any:
    if not isinstance(value := table[key], kind) or value == "":
        raise GateError(f"{where}: {key} is {value!r}; give {what}")
    return value


def _read_texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise GateError(f"{where}: {key} is {value!r}; give a list of texts")
    return tuple(texts)


def _read_share(table: Mapping[str, Any], key: str, where: str, *, least: float | None = None) -> float:
    """Return a fraction below 1 and above 0 (or from ``least``), written as a number or like "5%"."""
    value = table[key]
    share = number_of(value) if isinstance(value, str) and value.endswith("%") else value
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise GateError(f'{where}: {key} is {value!r}; give a number, such as 0.05, or a text "5%"')
    if not (0 < share < 1 or share == least):
        points = isinstance(value, (int, float)) and 1 < value < 100  # as the user may have meant it
        meant = f'; {value} points are {value / 100:g}, or "{value}%"' if points else ""
        raise GateError(f"{where}: {key} is {value}; give a share below 1: 0.01 is one point{meant}")
    return float(share)


def _refuse_key(_: Mapping[str, Any], key: str, where: str) -> NoReturn:
    raise GateError(f"{where}: {key} can only be said on the command line, by --eval-baseline-allow NAME,...")


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str, str], Any]]] = {
    "mode": _read_value,
    "baseline": _read_value,
    "allow": _refuse_key,
    "margin": functools.partial(_read_share, least=0.0),
    "max_drop": functools.partial(_read_share, least=0.0),
    "alpha": _read_share,
    "pooled": functools.partial(_read_value, kind=bool, what="true or false"),
    "accepted": _read_value,
}


# Checks before anything runs


_NAMED: Final = re.compile(
    r"(reference_)?(acc|exact_match|f1|em|(pass|real|lambada)@\d+|math_verify|minerva_exact|hendrycks_exact"
    r"|reachable|copy_baseline)(_.*)?"
)
"""Names of metrics that are shares in all benchmarks of this package."""


def check_plan(
    plan: GateConfig,
    declared: Mapping[str, Declaration],
    saved: Sequence[StoredResult],
    files: Iterable[Path],
) -> None:
    """Raise ``GateError`` for unknown benchmarks, metrics that they lack, and impossible floors.

    Args:
        plan: The settings of the gate.
        declared: The benchmarks of the run.
        saved: Saved results, whose benchmarks may be named too.
        files: The files of the run; benchmarks of other files in their folders may be named too.

    """
    plan = replace(plan, composites=tuple(composites_of(saved, declared_composites(declared))))
    composite_names = [composite.name for composite in plan.composites]
    if plan.sequential:
        _check_sequential(plan)
    metric_lists = [_known_metrics(name, declared, saved) for name in declared]
    if metric_lists and all(metric_lists):
        available = [*chain.from_iterable(metric_lists), *composite_names]
        check_names(plan.metrics, dict.fromkeys(available), "--eval-set gate_metric", "metric")
    names = [*declared, *map(base_name, declared), *(result.benchmark for result in saved), *composite_names]
    if any(name not in names for name in plan.benchmarks):
        names += declared_nearby(files)
    check_names(plan.benchmarks, sorted(set(names)), "gate", "benchmark")
    for name, rules in plan.benchmarks.items():
        metrics = [name] if name in composite_names else _known_metrics(name, declared, saved)
        wanted = [*(floor.metric for floor in rules.floors), *rules.metrics]
        if metrics:
            check_names(wanted, metrics, f"gate, {name}", "metric")
        if name in composite_names and rules.metrics not in ((), (name,)):
            raise GateError(f"gate, {name}: a composite has no other metric than itself")
    validate_floors(plan, saved)
    for benchmark in () if plan.mode is None else declared.values():
        with_aggregates = (*benchmark.scores, *benchmark.aggregate)
        for metric in plan.metrics_of(benchmark.name, benchmark.primary, with_aggregates):
            # Raises for a metric with a unit and without a margin.
            plan.margin_of(benchmark.name, metric, aggregation_of(benchmark.aggregate, metric))


def declared_composites(declared: Mapping[str, Declaration]) -> list[Composite]:
    """Return the composites that the benchmarks of a run declare."""
    return composites_from_plain(
        row for declaration in declared.values() for row in declaration.composites or ()
    )


def validate_floors(plan: GateConfig, saved: Sequence[StoredResult]) -> None:
    """Raise ``GateError`` for a floor outside [0, 1] on a metric that is a share."""
    for name, rules in plan.benchmarks.items():
        for floor in rules.floors:
            metrics = [result.metrics.get(floor.metric) for result in saved if result.benchmark == name]
            values = [metric.value for metric in metrics if metric is not None and metric.value is not None]
            named = plan.composite_of(name) is not None or _NAMED.fullmatch(floor.metric)
            share = named and all(0 <= value <= 1 for value in values)
            if share and not 0 <= floor.bound <= 1:
                raise GateError(f"gate, {name}: {floor.text!r}: {_suggest_bound(floor)}")


def _suggest_bound(floor: Floor) -> str:
    kind = f"{floor.metric} is a share, from 0 to 1"
    if floor.percent or not 1 < floor.bound <= 100:
        return kind
    per_cent = Decimal(f"{floor.bound:g}")
    share = per_cent / 100
    text = f"{share:.2f}" if share == round(share, 2) else f"{share.normalize():f}"
    return f"{kind}; write {text} or {per_cent.normalize():f}%"


def _check_sequential(plan: GateConfig) -> None:
    """Raise ``GateError`` for goals of a gate that need all items: composites, pooled verdicts, several metrics."""
    composite = next((name for name in plan.metrics if plan.composite_of(name) is not None), None)
    if plan.pooled or composite is not None:
        needs = "pooled = true" if plan.pooled else f"the composite {composite}"
        raise GateError(f"--eval-set gate_sequential: {needs} needs all items; leave one of the two out")
    for named in (plan.metrics, *(rules.metrics for rules in plan.benchmarks.values())):
        if SOFT in named:
            raise GateError(
                f"--eval-set gate_sequential settles a benchmark by one metric, and {SOFT} is tested beside the "
                "primary one: leave one of them out"
            )
        if len(named) > 1:
            raise GateError(
                "--eval-set gate_sequential settles a benchmark by one metric; "
                f"{', '.join(named)} are {len(named)}: name one"
            )


def _known_metrics(
    name: str, declared: Mapping[str, Declaration], saved: Sequence[StoredResult]
) -> list[str]:
    """Return the metrics of a benchmark from its declaration and saved results; empty if unknown."""
    declaration = declared.get(name)
    results = [
        result
        for result in saved
        if result.benchmark == name
        and (declaration is None or result.conditions.get("version") == declaration.version)
    ]
    if not results and not (declaration is not None and declaration.scores):
        return []
    names = (
        [declaration.primary, *declaration.scores, *declaration.aggregate] if declaration is not None else []
    )
    if declaration is not None and declaration.grouped:
        names += [f"{name}_macro" for name in names]
    return list(dict.fromkeys([*names, *(metric for result in results for metric in result.metrics)]))


def declared_nearby(files: Iterable[Path]) -> list[str]:
    """Return the names of all benchmarks that are declared in the folders of these files."""
    folders = {path.parent for path in files}
    paths = sorted(file for folder in folders for file in folder.glob("*.py"))
    return [name for path in paths for name in benchmark_names_in(path)]
