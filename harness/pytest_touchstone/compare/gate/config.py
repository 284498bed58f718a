"""``[tool.touchstone.gate]`` -> what a gate is to do, and the check that the benchmarks and metrics exist.

    [tool.touchstone.gate]
    mode = "plain"                # what --gate alone means: plain, or strict (fails also where it is inconclusive)
    baseline = "best"             # as --baseline
    metric = "score"              # as the key gate_metric; several: metrics = ["real@1", "real@5"]; "soft" of choices
    margin = 0.01                 # a loss up to this is no reason to fail: 0.01 is one point
    alpha = 0.05                  # chance of a false alarm over all benchmarks together, in either direction
    pooled = false                # true: the verdict on all items together may fail the gate too
    accepted = "FILE"             # the drops that were accepted, by default touchstone-accepted.json beside this file

    [tool.touchstone.gate.benchmarks.real_coref]
    metric = "real@1"             # compared by this metric instead of its primary one; or metrics = [...]
    margin = 0.02                 # its own
    max_drop = 0.05               # fails at any larger drop of the measured value, certain or not
    floors = ["real@1 >= 0.60"]   # fails below, whatever the baseline

margin, alpha, max_drop and the bounds of floors are shares: 0.05, or as a text "5%". Per cent are hundredths of the
metric, that is points; never per cent of the baseline.

A file that gate_config names has the same tables, or the keys of [tool.touchstone.gate] at its top. What is not known
is refused, with the nearest name there is.

Names are checked before anything runs, as far as they are known. Bounds that no share can have are refused. A share is
from 0 to 1. Metrics whose names say so (accuracies, exact matches, F1, pass@k and the like) are shares, and composites
are; a metric with a saved value below 0 or above 1 is none whatever its name.
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
from pathlib import Path
from typing import Any, Final, NoReturn

from pytest_touchstone.compare.gate.accepted import FILE, AcceptedDrop, read_accepted
from pytest_touchstone.core.aggregation import P_RIGHT, SOFT, Aggregation, aggregation_of
from pytest_touchstone.core.composite import Composite, composites_from_plain
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.files import read_toml, shown_path
from pytest_touchstone.core.tasks import declared_in
from pytest_touchstone.core.text import did_you_mean, join_names
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration, base_name
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, ROUNDING

MODES: Final = ("plain", "strict")
KEYS: Final = (
    *("mode", "baseline", "metric", "metrics", "allow", "margin", "alpha", "pooled"),
    *("accepted", "benchmarks"),
)
OWN_KEYS: Final = ("metric", "metrics", "margin", "max_drop", "floors")

TABLE: Final = "tool.touchstone.gate"

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
DIGITS: Final = 4
_FLOOR: Final = re.compile(
    r"\s*(?P<metric>\S+?)\s*(?P<how>>=|<=|>|<)\s*(?P<bound>[-+]?\d*\.?\d+(e[-+]?\d+)?%?)\s*"
)
_NUMBER: Final = re.compile(r"([-+]?\d*\.?\d+(?:e[-+]?\d+)?)(%?)")


@dataclass(frozen=True, slots=True)
class Floor:
    """A bound that a metric's value must keep: ``real@1 >= 0.6``, ``perplexity <= 20``. ``percent``: it was written
    as ``60%``."""

    metric: str
    how: str
    bound: float
    percent: bool = False

    @property
    def text(self) -> str:
        """The bound as a person writes it."""
        return f"{self.metric} {self.how} {self.bound:.12g}"

    def holds(self, value: float) -> bool:
        """Return whether the value keeps it; one that misses the bound by no more than rounding is at it."""
        at_bound = math.isclose(value, self.bound, rel_tol=ROUNDING, abs_tol=ROUNDING)
        return OPERATORS[self.how](self.bound if at_bound else value, self.bound)

    def shown(self, value: float) -> str:
        """The value with as many digits as tell it from the bound."""
        digits = (n for n in range(DIGITS, 12) if f"{value:.{n}g}" != f"{self.bound:.{n}g}")
        return f"{value:.{next(digits, DIGITS)}g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """The rules for one benchmark beside the general ones; None, or empty, where nothing is."""

    metrics: tuple[str, ...] = ()
    margin: float | None = None
    max_drop: float | None = None
    floors: tuple[Floor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The settings of a gate. With ``mode`` None verdicts are shown, and the exit code does not depend on them."""

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
    """The known composites: those of the run and of its baselines, not of the configuration."""

    def composite_of(self, name: str) -> Composite | None:
        """The composite of this name, if there is one."""
        return next((one for one in self.composites if one.name == name), None)

    @property
    def plain_metrics(self) -> list[str]:
        """The gate's metrics that are not composites."""
        return [name for name in self.metrics if self.composite_of(name) is None]

    def metrics_of(self, benchmark: str, primary: str, known: Iterable[str]) -> tuple[str, ...]:
        """The metrics by which a benchmark is compared: its own, which ``known`` may lack, else those of the gate that
        it has, else the primary one. The soft score never comes without the primary one."""
        there = set(known)
        shared = tuple(name for name in self.metrics if name in there)
        named = self.own(benchmark).metrics or shared or (primary,)
        return tuple(dict.fromkeys((primary, *named))) if SOFT in named else named

    def own(self, benchmark: str) -> BenchmarkRules:
        """The rules for this benchmark. For ``styled[polite]``, a result for one value of a parameter, they are its
        own rules, else those for ``styled``."""
        return self.benchmarks.get(benchmark) or self.benchmarks.get(base_name(benchmark), BenchmarkRules())

    def margin_of(self, benchmark: str, metric: str, how: Aggregation) -> float:
        """The benchmark's own margin, or that of all; of a metric with a unit the one that it declares.

        Raises ``GateError`` where it declares none.
        """
        if (own := self.own(benchmark).margin) is not None:
            return own
        if not how.unit:
            return self.margin
        if how.margin is None:
            raise GateError(
                f"{benchmark} {metric} is in {how.unit}, for which there is no margin; give one: "
                f"margin = ... under [{TABLE}.benchmarks.{benchmark}]"
            )
        return how.margin

    @property
    def floors(self) -> bool:
        """Return whether any metric has a bound to keep."""
        return any(one.floors for one in self.benchmarks.values())


def read_gate_config(path: Path, *, required: bool, root: Path | None = None) -> GateConfig:
    """The plan that a TOML file has; unless ``required`` an empty one where it has none or is not there. It has the
    drops that were accepted in the project, whose folder is ``root``, else the file's.

    Raises ``GateError`` naming the file, the key and the value.
    """
    found = _read_config(path, required=required)
    return replace(found, accepted=read_accepted((root or path.parent) / found.accepted_file))


def _read_config(path: Path, *, required: bool) -> GateConfig:
    try:
        tables = read_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        if not required and isinstance(error, FileNotFoundError):
            return GateConfig()
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise GateError(f"cannot read {shown_path(path)}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise GateError(f"{path} is no TOML: {error}") from None
    whole = "tool" not in tables and required and path.name != "pyproject.toml"
    table = tables if whole else _inside(tables, TABLE.split("."), str(path))
    if required and not table:
        raise GateError(f"{path} has no [{TABLE}]; give a file that has one, or its keys at the top")
    return gate_config_of(table, f"{path}" if whole else f"{path}: [{TABLE}]")


def gate_config_of(table: Mapping[str, Any], where: str) -> GateConfig:
    """The plan of a table; raises ``GateError``, beginning with ``where``, for anything that is not known."""
    check_names(table, KEYS, where, "key")
    found = {key: read(table, key, where) for key, read in _READERS.items() if key in table}
    if (mode := found.get("mode", "plain")) not in MODES:
        raise GateError(f"{where}: {mode!r} is no mode; use {' or '.join(MODES)}")
    found["metrics"] = _metrics(table, where)
    found["accepted_file"] = found.pop("accepted", FILE)
    own = table.get("benchmarks", {})
    if not isinstance(own, Mapping) or not all(isinstance(one, Mapping) for one in own.values()):
        raise GateError(f"{where}: benchmarks is {own!r}; give a table for each: [{TABLE}.benchmarks.NAME]")
    found["benchmarks"] = {name: _own(one, f"{where}, benchmarks.{name}") for name, one in own.items()}
    return GateConfig(**found)


def parse_floor(text: str, where: str) -> Floor:
    """``METRIC >= NUMBER``, with >=, >, <= or <, the number as ``0.6`` or ``60%``; raises ``GateError``."""
    found = _FLOOR.fullmatch(text)
    if found is None:
        raise GateError(
            f"{where}: {text!r} is no floor; write METRIC >= NUMBER, such as 'acc >= 0.6' or 'acc >= 60%'"
        )
    bound = number_of(found["bound"])
    if bound is None:
        raise GateError(f"{where}: {text!r} is no floor: its bound is too large")
    return Floor(found["metric"], found["how"], bound, found["bound"].endswith("%"))


def number_of(text: str) -> float | None:
    """The number in a text, ``60%`` as 0.6; None where that is no finite number."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    value = float(Decimal(found[1]) / 100) if found[2] else float(found[1])
    return value if math.isfinite(value) else None


def check_names(names: Iterable[str], known: Iterable[str], where: str, what: str) -> None:
    """Raises ``GateError`` naming the first that is not known, the nearest one, and those that there are, of many the
    first few."""
    there = list(known)
    for name in names:
        if name not in there:
            hint = did_you_mean(str(name), there)
            raise GateError(f"{where}: unknown {what} {name!r}; {hint}known are {join_names(known)}")


def _own(table: Mapping[str, Any], where: str) -> BenchmarkRules:
    check_names(table, OWN_KEYS, where, "key")
    found = {key: read(table, key, where) for key, read in _READERS.items() if key in table}
    floors = tuple(parse_floor(text, where) for text in _texts(table, "floors", where))
    return BenchmarkRules(metrics=_metrics(table, where), floors=floors, **found)


def _metrics(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The names in ``metric`` or ``metrics``."""
    if "metric" in table and "metrics" in table:
        raise GateError(f"{where}: both metric and metrics are given; leave metric out")
    if "metric" in table:
        return metric_names([_value(table, "metric", where)])
    found = _texts(table, "metrics", where)
    if "metrics" in table and not all(found or ("",)):
        raise GateError(f"{where}: metrics is {table['metrics']!r}; name at least one metric")
    return metric_names(found)


def metric_names(written: Iterable[str]) -> tuple[str, ...]:
    """The metrics that a person has named, each once; for ``p_right``, which the scale of the log-probabilities alone
    moves, the soft score."""
    return tuple(dict.fromkeys(SOFT if name == P_RIGHT else name for name in written))


def _inside(tables: Mapping[str, Any], names: Iterable[str], where: str) -> Mapping[str, Any]:
    for name in names:
        tables = tables.get(name, {})
        if not isinstance(tables, Mapping):
            raise GateError(f"{where}: {name} of [{TABLE}] is no table")
    return tables


def _value(
    table: Mapping[str, Any], key: str, where: str, kind: type[Any] = str, what: str = "a text"
) -> Any:
    if not isinstance(value := table[key], kind) or value == "":
        raise GateError(f"{where}: {key} is {value!r}; give {what}")
    return value


def _texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
        raise GateError(f"{where}: {key} is {value!r}; give a list of texts")
    return tuple(several)


def _share(table: Mapping[str, Any], key: str, where: str, *, least: float | None = None) -> float:
    """A number below 1, above 0 or from ``least`` up, or such a share in per cent, as a text."""
    value = table[key]
    share = number_of(value) if isinstance(value, str) and value.endswith("%") else value
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise GateError(f'{where}: {key} is {value!r}; give a number, such as 0.05, or a text "5%"')
    if not (0 < share < 1 or share == least):
        points = isinstance(value, (int, float)) and 1 < value < 100  # as the user may have meant it
        meant = f'; {value} points are {value / 100:g}, or "{value}%"' if points else ""
        raise GateError(f"{where}: {key} is {value}; give a share below 1: 0.01 is one point{meant}")
    return float(share)


def _refused(_: Mapping[str, Any], key: str, where: str) -> NoReturn:
    raise GateError(f"{where}: {key} can only be said on the command line, by --eval-baseline-allow NAME,...")


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str, str], Any]]] = {
    "mode": _value,
    "baseline": _value,
    "allow": _refused,
    "margin": functools.partial(_share, least=0.0),
    "max_drop": functools.partial(_share, least=0.0),
    "alpha": _share,
    "pooled": functools.partial(_value, kind=bool, what="true or false"),
    "accepted": _value,
}


# Names are checked before anything runs


_NAMED: Final = re.compile(
    r"(reference_)?(acc|exact_match|f1|em|(pass|real|lambada)@\d+|math_verify|minerva_exact|hendrycks_exact"
    r"|reachable|copy_baseline)(_.*)?"
)
"""Names of metrics that are shares in every benchmark that comes with the package."""


def check_plan(
    plan: GateConfig,
    declared: Mapping[str, Declaration],
    saved: Sequence[StoredResult],
    files: Iterable[Path],
) -> None:
    """Raise ``GateError`` for an unknown benchmark, for a metric that its benchmark (for a gate's metric, every
    benchmark) is known to lack, and for a floor that no share can have.

    ``declared`` are the run's benchmarks; those that were saved, and those that stand in the same folders as the run's
    ``files``, are known too.
    """
    plan = replace(plan, composites=tuple(composites_of(saved, declared_composites(declared))))
    made = [one.name for one in plan.composites]
    if plan.sequential:
        _check_sequential(plan)
    found = [_known_metrics(name, declared, saved) for name in declared]
    if found and all(found):
        known = [metric for one in found for metric in one] + made
        check_names(plan.metrics, dict.fromkeys(known), "--eval-set gate_metric", "metric")
    names = [*declared, *map(base_name, declared), *(one.benchmark for one in saved), *made]
    if any(name not in names for name in plan.benchmarks):
        names += declared_nearby(files)
    check_names(plan.benchmarks, sorted(set(names)), "gate", "benchmark")
    for name, own in plan.benchmarks.items():
        metrics = [name] if name in made else _known_metrics(name, declared, saved)
        wanted = [*(floor.metric for floor in own.floors), *own.metrics]
        if metrics:
            check_names(wanted, metrics, f"gate, {name}", "metric")
        if name in made and own.metrics not in ((), (name,)):
            raise GateError(f"gate, {name}: a composite has no other metric than itself")
    validate_floors(plan, saved)
    if plan.mode is not None:
        _check_margins(plan, declared.values())


def _check_margins(plan: GateConfig, declared: Iterable[Declaration]) -> None:
    """Raises ``GateError`` for a metric with a unit that is to be judged and has no margin."""
    for one in declared:
        for metric in plan.metrics_of(one.name, one.primary, (*one.scores, *one.aggregate)):
            plan.margin_of(one.name, metric, aggregation_of(one.aggregate, metric))


def declared_composites(declared: Mapping[str, Declaration]) -> list[Composite]:
    """The composites that the benchmarks of a run name."""
    return composites_from_plain(row for one in declared.values() for row in one.composites or ())


def validate_floors(plan: GateConfig, saved: Sequence[StoredResult]) -> None:
    """Raises ``GateError`` for a floor that its metric, a share, keeps always or never."""
    for name, own in plan.benchmarks.items():
        for floor in own.floors:
            metrics = [one.metrics.get(floor.metric) for one in saved if one.benchmark == name]
            values = [metric.value for metric in metrics if metric is not None and metric.value is not None]
            named = plan.composite_of(name) is not None or _NAMED.fullmatch(floor.metric)
            share = named and all(0 <= value <= 1 for value in values)
            if share and not 0 <= floor.bound <= 1:
                raise GateError(f"gate, {name}: {floor.text!r}: {_remedy(floor)}")


def _remedy(floor: Floor) -> str:
    kind = f"{floor.metric} is a share, from 0 to 1"
    if floor.percent or not 1 < floor.bound <= 100:
        return kind
    per_cent = Decimal(f"{floor.bound:g}")
    share = per_cent / 100
    text = f"{share:.2f}" if share == round(share, 2) else f"{share.normalize():f}"
    return f"{kind}; write {text} or {per_cent.normalize():f}%"


def _check_sequential(plan: GateConfig) -> None:
    """Raises ``GateError`` for what no interim analysis can settle: composites, pooled verdicts, several metrics."""
    whole = next((name for name in plan.metrics if plan.composite_of(name) is not None), None)
    if plan.pooled or whole is not None:
        needs = "pooled = true" if plan.pooled else f"the composite {whole}"
        raise GateError(f"--eval-set gate_sequential: {needs} needs all items; leave one of the two out")
    for named in (plan.metrics, *(own.metrics for own in plan.benchmarks.values())):
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
    """The metrics that a benchmark is known to have, by its declaration or its saved results; empty where that is
    not known."""
    one = declared.get(name)
    same = [
        entry
        for entry in saved
        if entry.benchmark == name and (one is None or entry.conditions.get("version") == one.version)
    ]
    if not same and not (one is not None and one.scores):
        return []
    own = [one.primary, *one.scores, *one.aggregate] if one is not None else []
    if one is not None and one.grouped:
        own += [f"{name}_macro" for name in own]
    return list(dict.fromkeys([*own, *(metric for entry in same for metric in entry.metrics)]))


def declared_nearby(files: Iterable[Path]) -> list[str]:
    """The names of all benchmarks that are declared in the folders of these files."""
    folders = {path.parent for path in files}
    paths = sorted(file for folder in folders for file in folder.glob("*.py"))
    return [name for path in paths for name in declared_in(path)]
