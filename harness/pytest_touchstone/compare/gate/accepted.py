"""Drops that were accepted: a small file of the project, reviewed like code, that a gate holds to.

    {"schema": 1, "kind": "accepted", "accepted": [
      {"benchmark": "real_coref", "metric": "real@1", "from": 0.19, "to": 0.02, "because": "half the data, as agreed",
       "by": "Ann <ann@example.org>", "on": "2026-01-02", "run": "new", "checkpoint": "checkpoint-25",
       "fingerprint": "...", "items": 100, "items_sha256": "...", "conditions": {"version": 1, "shots": 0, ...},
       "crc32": "..."}]}

``from`` is the baseline's value, null where there was none, and ``to`` the value that is accepted, both as the gate
compares them. On the same items, asked alike:

- a result that is not below the accepted value by more than chance and the margin does not fail, though the baseline,
  ``max_drop`` or a floor say so;
- one that is, fails, also where no baseline is left. It is compared in pairs with the accepted result where that is
  saved; else the accepted value must lie outside of its 95 % interval;
- against a baseline that is better than ``from`` by more than the margin, a drop is another one, and fails.

``touchstone accept`` writes the file; a benchmark's metric stands in it once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.core.errors import GateError, HarnessError
from pytest_touchstone.core.files import (
    FINITE,
    SCHEMA,
    add_checksum,
    check_kind,
    from_plain,
    open_regular,
    parse_json,
    shown_path,
    without_checksum,
    write_json,
)
from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.text import one_line
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.statistics.comparison import fixed
from pytest_touchstone.statistics.verdicts import ROUNDING

FILE: Final = "touchstone-accepted.json"
"""The file, in the project's folder, where the configuration names no other."""

KIND: Final = "accepted"
MOST_BYTES: Final = 1 << 20
MOST_SIGNS: Final = 500
"""The longest text that an entry may have."""

ASKED: Final = ("version", "shots", "template")
"""The conditions that an entry keeps, and that must be the same."""

FLOOR: Final = "floor "
"""The beginning of a reason to fail that needs no baseline."""


def shown_text(text: str) -> str:
    """Return the text in one line, without keys and signs that do not show."""
    return one_line(redact(text))


ShortText: TypeAlias = Annotated[str, Field(max_length=MOST_SIGNS), AfterValidator(shown_text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedDrop:
    """An entry of the file; ``before`` is its ``from``."""

    __pydantic_config__ = FINITE

    benchmark: ShortText
    metric: ShortText
    before: float | None
    to: float
    because: ShortText
    by: ShortText
    on: ShortText
    run: ShortText
    checkpoint: ShortText
    fingerprint: ShortText
    items: int = 0
    items_sha256: ShortText = ""
    conditions: dict[str, int | ShortText] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the entry as a sentence."""
        before = "" if self.before is None else f"from {fixed(self.before, 4)} "
        return f"accepted {before}to {fixed(self.to, 4)} by {self.who} on {self.on}: {self.because}"

    @property
    def who(self) -> str:
        """Return the person's name, without an address."""
        return self.by.partition(" <")[0]

    def is_of(self, saved: StoredResult) -> bool:
        """Return whether a saved result is the accepted one, or an equally good one of that checkpoint."""
        metric = saved.metrics.get(self.metric)
        same = metric is not None and metric.value is not None and abs(metric.value - self.to) <= ROUNDING
        same_checkpoint = bool(self.fingerprint) and saved.fingerprint == self.fingerprint
        return saved.benchmark == self.benchmark and same_checkpoint and (same or saved.run_id == self.run)

    def differs(self, saved: StoredResult | None) -> str:
        """Return why it says nothing about a result: of other items, or asked otherwise; else nothing."""
        if saved is None or not self.items_sha256:
            return ""
        differences = [
            f"{name} was {self.conditions[name]} and is {saved.conditions.get(name)}"
            for name in ASKED
            if name in self.conditions and self.conditions[name] != saved.conditions.get(name)
        ]
        if self.items_sha256 != saved.items_sha256:
            differences.append(
                f"it was on {self.items} items, which are not the {saved.scored} of this result"
            )
        return ", ".join(differences)


def read_accepted(path: Path) -> tuple[AcceptedDrop, ...]:
    """Read the accepted drops, none without a file; raises ``GateError`` for a malformed file."""
    try:
        with open_regular(path, most=MOST_BYTES) as file:
            data = parse_json(file.read())
        check_kind(data, KIND)
        rows = data.get("accepted")
        if not isinstance(rows, list):
            raise ValueError("it has no list 'accepted'")
        accepted_drops = [_entry(row, f"accepted.{index}") for index, row in enumerate(rows)]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, HarnessError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GateError(
            f"{shown_path(path)}: cannot be read ({reason}); mend it, or remove it and accept the drops again"
        ) from None
    keys = [(drop.benchmark, drop.metric) for drop in accepted_drops]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise GateError(f"{shown_path(path)}: {' '.join(twice)} stands in it twice; keep one of the two")
    return tuple(accepted_drops)


def _entry(row: Any, where: str) -> AcceptedDrop:
    try:
        if not isinstance(row, dict):
            raise ValueError("it is no object")
        return from_plain(AcceptedDrop, without_checksum(row) | {"before": row.get("from")})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def write_accepted(path: Path, drops: Iterable[AcceptedDrop]) -> None:
    """Write the file; raises ``GateError`` where that cannot be."""
    ordered = sorted(drops, key=lambda drop: (drop.benchmark, drop.metric))
    rows = (
        {"from" if name == "before" else name: value for name, value in asdict(drop).items()}
        for drop in ordered
    )
    try:
        write_json(path, {"schema": SCHEMA, "kind": KIND, "accepted": list(map(add_checksum, rows))})
    except OSError as error:
        raise GateError(f"{shown_path(path)}: cannot be written ({error.strerror})") from None


def drop_of(
    line: BenchmarkComparison,
    saved: StoredResult | None,
    former: AcceptedDrop | None,
    *,
    because: str,
    by: str,
    on: str,
    run: str,
) -> AcceptedDrop:
    """Return the accepted drop for a line; without a baseline it continues the former entry."""
    assert line.comparison.new is not None
    before = former.before if former is not None else None
    before = before if line.against is None else line.as_measured.baseline
    value = _measured(line, saved)
    return AcceptedDrop(
        benchmark=line.benchmark,
        metric=line.metric,
        before=before,
        to=line.comparison.new if value is None else value.plain,
        because=because,
        by=by,
        on=on,
        run=run,
        checkpoint=line.checkpoint,
        fingerprint=saved.fingerprint if saved is not None else "",
        items=saved.scored if saved is not None else 0,
        items_sha256=saved.items_sha256 if saved is not None else "",
        conditions={name: saved.conditions[name] for name in ASKED if name in saved.conditions}
        if saved
        else {},
    )


# Holding a gate to them


class _Measured(NamedTuple):
    """A value as the gate compares it, its upper limit where larger is better, and the sign that makes it so."""

    plain: float
    most: float | None
    sign: int


def _measured(line: BenchmarkComparison, saved: StoredResult | None) -> _Measured | None:
    """Return the value of a line; None if only a comparison could give it."""
    comparison = line.comparison
    if comparison.new is None:
        return None
    if saved is None:
        low, high = comparison.low, comparison.high
        most = None if low is None or high is None else comparison.new + (high - low) / 2
        return _Measured(comparison.new, most, 1)
    how, metric = saved.aggregation(line.metric), saved.metrics.get(line.metric)
    sign = 1 if how.compared_higher_is_better else -1
    if not how.is_perplexity and metric is not None and metric.value is not None:
        limit = metric.high if sign > 0 else metric.low
        return _Measured(metric.value, None if limit is None else sign * limit, sign)
    if how.is_perplexity and metric is not None and metric.value and metric.value > 0:
        value = -math.log(metric.value)
        return _Measured(value, -math.log(metric.low) if metric.low else None, 1)
    return None if comparison.difference is None else _Measured(comparison.new, None, sign)


Further: TypeAlias = Callable[[BenchmarkScores, AcceptedDrop], bool | None]
"""Whether a result is worse than the accepted one, by their items; None where that one is not saved."""


def apply_accepted_drops(
    line: BenchmarkComparison,
    entry: BenchmarkScores | None,
    drops: Sequence[AcceptedDrop],
    *,
    margin: float,
    further: Further,
) -> BenchmarkComparison:
    """Return a line after the accepted drops are applied."""
    drop = next(
        (
            accepted
            for accepted in drops
            if (accepted.benchmark, accepted.metric) == (line.benchmark, line.metric)
        ),
        None,
    )
    saved = entry.saved if entry is not None else None
    value = _measured(line, saved)
    if drop is None or value is None or line.invalid:
        return line
    if other := drop.differs(saved):
        note = f"the drop that {drop.who} accepted on {drop.on} does not count here: {other}"
        return replace(line, notes=(*line.notes, note)) if line.fails else line
    floor = value.sign * drop.to
    worse = further(entry, drop) if entry is not None else None
    if worse is None:
        below = floor - value.sign * value.plain > margin + ROUNDING
        worse = below and (value.most is None or value.most < floor)
    if worse:
        reason = f"{fixed(value.plain, 4)} is worse than the {fixed(drop.to, 4)} that {drop.who} accepted on {drop.on}"
        return replace(line, fails=(*line.fails, reason))
    waived = (
        line.fails
        if line.comparison.difference is not None
        else tuple(reason for reason in line.fails if reason.startswith(FLOOR))
    )
    if not waived:
        return line
    start = line.as_measured.baseline
    if start is not None and (drop.before is None or value.sign * (start - drop.before) > margin + ROUNDING):
        note = f"{drop.text}; but the baseline is {fixed(start, 4)} now, so that this is another drop"
        return replace(line, notes=(*line.notes, note))
    left = tuple(reason for reason in line.fails if reason not in waived)
    return replace(line, fails=left, accepted=f"{', '.join(waived)}: {drop.text}")


def of_each(drops: Iterable[AcceptedDrop]) -> dict[tuple[str, str], AcceptedDrop]:
    """Return the accepted drops by benchmark and metric."""
    return {(drop.benchmark, drop.metric): drop for drop in drops}
