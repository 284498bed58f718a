"""The noise of the machine: what changes where the same checkpoint is asked the same again in another way.

``touchstone noise`` measures it and keeps it in ``OUTPUT/noise/CHECKPOINT@RUN_ID.json``, where gates find it:

    {"schema": 1, "kind": "noise", "checkpoint": "ckpt-7", "fingerprint": "...", "dtype": "auto", "rows": [{...}, ...]}
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.result import GateLine
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import SCHEMA, check_kind, file_name, read_checked, typed, write_checked
from pytest_touchstone.core.text import one_line
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import Summary, finite, wholes
from pytest_touchstone.statistics.units import unit_of
from pytest_touchstone.statistics.verdicts import ROUNDING

_LOG: Final = logging.getLogger("touchstone")

FOLDER: Final = "noise"

FLIP: Final = 1e-3
"""The least difference of an item's score that is a flip: bits and log-probabilities always differ by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What one other ``way`` of asking changed on a benchmark.

    ``same_machine``: the way has the number type and the engine of the first, so that a gate may have met it.
    ``change`` is that of the primary ``metric``, a share or in its own unit; ``flips`` are the items whose score of it
    differs, of ``items``. ``largest`` and ``mean`` are absolute differences (nats) of ``logprobs`` log-probabilities,
    None without any; of ``texts`` generated texts ``same_texts`` are equal, letter by letter.
    """

    benchmark: str
    way: str
    same_machine: bool
    metric: str
    items: int
    flips: int
    change: float | None
    unit: str = ""
    logprobs: int = 0
    largest: float | None = None
    mean: float | None = None
    texts: int = 0
    same_texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNoise:
    """The noise of a checkpoint, asked first with ``dtype``, a value of ``--eval-dtype``."""

    checkpoint: str
    fingerprint: str
    dtype: str
    rows: tuple[Noise, ...]


def noise_between(
    first: Summary,
    records: Iterable[Record],
    second: Summary,
    again: Iterable[Record],
    way: str,
    *,
    same: bool,
) -> Iterator[Noise]:
    """Yield what the second of two runs of one checkpoint changed, for each benchmark that both have scored; ``same``
    is ``same_machine``. Items that either run has not scored count nowhere."""
    known = {record.example: record for record in records if record.status == "scored"}
    pairs: dict[str, list[tuple[Record, Record]]] = {}
    for record in again:
        if record.status == "scored" and (former := known.get(record.example)) is not None:
            pairs.setdefault(record.benchmark, []).append((former, record))
    declared = {one.name: one for one in first.declarations}
    values = {one.benchmark: one.metrics[one.primary].value for one in wholes(second)}
    for one in wholes(first):
        if not (both := pairs.get(one.benchmark)):
            continue
        how = aggregation_of(declared[one.benchmark].aggregate, one.primary)
        scores = [(a.scores.get(how.of), b.scores.get(how.of)) for a, b in both]
        before, after = one.metrics[one.primary].value, values.get(one.benchmark)
        apart = [abs(a - b) for two in both for a, b in _pairs(two, _logprobs)]
        texts = [a == b for two in both for a, b in _pairs(two, _texts)]
        yield Noise(
            benchmark=one.benchmark,
            way=way,
            same_machine=same,
            metric=one.primary,
            items=len(both),
            flips=sum(a is not None and b is not None and abs(a - b) > FLIP for a, b in scores),
            change=None if before is None or after is None else after - before,
            unit=how.unit,
            logprobs=len(apart),
            largest=max(apart, default=None),
            mean=fmean(apart) if apart else None,
            texts=len(texts),
            same_texts=sum(texts),
        )


def _pairs(
    records: tuple[Record, Record], part: Callable[[Record], Iterator[Any]]
) -> Iterator[tuple[Any, Any]]:
    """Yield what both have, in the order of their requests; nothing where they have asked differently."""
    first, second = ([*part(one)] for one in records)
    if len(first) == len(second):
        yield from zip(first, second, strict=True)


def _logprobs(record: Record) -> Iterator[float]:
    for exchange in record.exchanges:
        for name in ("logprob", "target_logprob"):
            if (value := exchange["answer"].get(name)) is not None:
                yield float(value)


def _texts(record: Record) -> Iterator[str]:
    for exchange in record.exchanges:
        if exchange["kind"] == "Generate":
            yield from (sample["text"] for sample in exchange["answer"].get("samples", ()))


# Files


def save_noise(output: Path, measured: MeasuredNoise, run_id: str) -> Path:
    """Write what was measured into a results folder, and return the file."""
    path = output / FOLDER / f"{file_name(measured.checkpoint)}@{file_name(run_id)}.json"
    plain = finite({"schema": SCHEMA, "kind": "noise", **asdict(measured)})
    write_checked(path, plain, indent=1)
    return path


def read_noise(output: Path) -> list[MeasuredNoise]:
    """Return what was measured in a results folder; files that cannot be read are told and left out."""
    found = []
    for path in sorted((output / FOLDER).glob("*.json")):
        try:
            data = read_checked(path)
            check_kind(data, "noise")
            found.append(typed(MeasuredNoise, {key: data[key] for key in MeasuredNoise.__dataclass_fields__}))
        except (OSError, ValueError, KeyError, HarnessError) as error:
            reason = one_line(str(error)) or type(error).__name__
            _LOG.warning("touchstone: %s: cannot be read (%s), and is left out; remove it", path, reason)
    return found


# Gates


def noise_notes(
    lines: Iterable[GateLine],
    entries: Iterable[BenchmarkScores],
    baselines: Iterable[StoredResult],
    measured: Sequence[MeasuredNoise],
) -> list[str]:
    """Return a note on each line of a gate whose loss is no larger than what the machine alone did to either of its
    checkpoints, asked with the same number type. It changes no verdict."""
    saved = {(one.saved.checkpoint, one.saved.benchmark): one.saved for one in entries}
    known = {(one.run_id, one.checkpoint): one.fingerprint for one in baselines}
    notes: list[str] = []
    for line in lines:
        mine = saved.get((line.checkpoint, line.benchmark))
        if mine is None or line.against is None or line.as_measured is None:
            continue
        how = mine.aggregation(line.metric)
        loss = -line.as_measured if how.higher_is_better else line.as_measured
        both = mine.fingerprint, known.get((line.against.run_id, line.against.checkpoint), "")
        known_changes = [
            (abs(row.change or 0.0), row, one.checkpoint)
            for one in measured
            if one.fingerprint and one.fingerprint in both and one.dtype == mine.known.get("dtype", "auto")
            for row in one.rows
            if row.same_machine and (row.benchmark, row.metric) == (line.benchmark, line.metric)
        ]
        most, row, whose = max(known_changes, key=itemgetter(0), default=(0.0, None, ""))
        if row is None or not ROUNDING < loss <= most + ROUNDING:
            continue
        unit = unit_of(how.unit, share=True)
        notes.append(
            f"{line.benchmark}: {line.metric} of {line.checkpoint} is worse by {unit.told(loss)[1:]}, and the "
            f"machine alone changed it by {unit.moved(most)[1:]} on {row.items} items of {whose} ({row.way}; "
            "`touchstone noise`)"
        )
    return list(dict.fromkeys(notes))
