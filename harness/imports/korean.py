"""Result files and tables of Korean masked-LM studies: JSON, one a checkpoint, or CSV, a row each.

    checkpoint (or name)            and, in a table of several series, series
    step or global_step, epoch, seq_len
    real1, real5, lambada_top1, lambada_wiki_top1     shares; NAME_strict and NAME_stderr beside each
    coref_samples, lambada_samples, lambada_wiki_samples     items
    coref_of, lambada_of, lambada_wiki_of                    items that the set has, where not all were asked
    score, reported_score           checked against 0.4 real1 + 0.3 real5 + 0.3 lambada_top1, never used

In a table a share may be written with a per cent sign. What a row lacks is not measured; a row without any of the
shares cannot be read, and neither can one with a value that is none. Such rows are listed, the others are taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness.checkpoints.progress import step_of_row
from harness.imports.contender import Contender, Entry, Source, published, published_entry
from harness.metrics.composites import COMPOSITES, composite_value
from harness.reports.by_checkpoint import COLUMNS, SETS
from harness.results import Metric

ABOUT: Final = {"series": str, "seq_len": int, "step": int, "epoch": float}
_NAME: Final = ("checkpoint", "name")
_REPORTED: Final = {"score": ("score", "reported_score"), "score_wiki": ("score_wiki",)}
_STRICT: Final = "_strict"
_STDERR: Final = "_stderr"


class WrongValueError(Exception):
    """A value of a row is none: ``column``, ``value``, and what to do."""

    def __init__(self, column: str, value: object, remedy: str) -> None:
        super().__init__(f"{column} is {value!r}: {remedy}")
        self.column, self.value, self.remedy = column, value, remedy


class Contradiction(NamedTuple):
    """A composite that does not follow from the parts beside it by more than rounding."""

    name: str
    composite: str
    reported: float
    computed: float


class Row(NamedTuple):
    """A row that was read, and the composites in it that contradict their formula."""

    contender: Contender
    contradictions: tuple[Contradiction, ...]


def is_korean(fields: Mapping[str, Any]) -> bool:
    """Whether these are the fields of such a row."""
    return any(column.key in fields for column in COLUMNS)


def read_row(fields: Mapping[str, Any], *, origin: str, source: Source, sizes: Mapping[str, int]) -> Row:
    """The contender of a row. ``sizes`` are the numbers of items by benchmark where the row does not say.

    Raises ``WrongValueError`` for a value that is none, and for a row without any result.
    """
    info = fields.get("checkpoint_info")
    known = {**(info if isinstance(info, Mapping) else {}), **fields}
    about = _about(known)
    name = row_name(known)
    measured = _metrics(fields, sizes)
    if not measured:
        keys = ", ".join(column.key for column in COLUMNS)
        raise WrongValueError(COLUMNS[0].key, None, f"the row has no result; fill in one of {keys}")
    entries = {}
    for benchmark, metrics in measured.items():
        saved = published_entry(
            benchmark,
            metrics,
            primary=next(iter(metrics)),
            source=source,
            name=name,
            about=about,
            conditions={"seq_len": about["seq_len"]} if "seq_len" in about else {},
            of=next(
                (
                    whole(f"{key}_of", fields.get(f"{key}_of"))
                    for key, set_ in SETS.items()
                    if set_ == benchmark
                ),
                None,
            ),
        )
        entries[benchmark] = Entry(saved=saved)
    contender = Contender(name=name, origin=origin, about=about, entries=entries)
    return Row(contender, _contradictions(name, fields, measured))


def row_name(fields: Mapping[str, Any]) -> str:
    """``SERIES/SEQ_LEN/CHECKPOINT`` in a table of series, else the checkpoint's name."""
    name = next((str(fields[key]) for key in _NAME if fields.get(key) not in (None, "")), "")
    step = _step(fields)
    if not name and step is None:
        raise WrongValueError("checkpoint", None, "the row has no name; fill in checkpoint or step")
    name = name.rstrip("/") or f"checkpoint-{step}"
    if not fields.get("series"):
        return name
    return "/".join(str(part) for part in (fields["series"], fields.get("seq_len"), name) if part)


def number(column: str, value: object) -> float | None:
    """The number in a field, None for an empty one; raises ``WrongValueError`` for what is no finite number."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    found: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str):
        text = value.strip()
        try:
            found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            found = None
    if found is None or not math.isfinite(found):
        raise WrongValueError(column, value, "give a number, or leave the field empty")
    return found


def share(column: str, value: object) -> float | None:
    """The same of a share."""
    found = number(column, value)
    if found is not None and not 0 <= found <= 1:
        raise WrongValueError(
            column, value, "give a share from 0 to 1, or write per cent with its sign: 65.6%"
        )
    return found


def whole(column: str, value: object, least: int = 0) -> int | None:
    """The same of a whole number from ``least`` up."""
    found = number(column, value)
    if found is not None and (found != int(found) or found < least):
        raise WrongValueError(column, value, f"give a whole number from {least} up")
    return None if found is None else int(found)


def _about(fields: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "series": str(fields["series"]) if fields.get("series") else None,
        "seq_len": whole("seq_len", fields.get("seq_len"), 1),
        "step": whole("step", _step(fields)),
        "epoch": number("epoch", fields.get("epoch")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _step(fields: Mapping[str, Any]) -> Any:
    """What a row says of its step; an empty field says nothing."""
    return step_of_row({name: value for name, value in fields.items() if value not in (None, "")})


def _metrics(fields: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, dict[str, Metric]]:
    """The metrics by benchmark, the primary one first."""
    lengths = {benchmark: f"{key}_samples" for key, benchmark in SETS.items()}
    found: dict[str, dict[str, Metric]] = {}
    for key, benchmark, metric in COLUMNS:
        value = share(key, fields.get(key))
        if value is None:
            continue
        column = lengths[benchmark]
        n = whole(column, fields.get(column), 1) or sizes.get(benchmark) or 0
        error = number(f"{key}{_STDERR}", fields.get(f"{key}{_STDERR}"))
        if error is not None and error < 0:
            raise WrongValueError(f"{key}{_STDERR}", error, "a standard error is not below 0")
        own = found.setdefault(benchmark, {})
        own[metric] = published(metric, value, stderr=error, n=n)
        strict = share(f"{key}{_STRICT}", fields.get(f"{key}{_STRICT}"))
        if strict is not None:
            own[f"{metric}{_STRICT}"] = published(f"{metric}{_STRICT}", strict, n=n)
    return found


def _contradictions(
    name: str, fields: Mapping[str, Any], measured: Mapping[str, Mapping[str, Metric]]
) -> tuple[Contradiction, ...]:
    values = {(b, m): metric.value for b, metrics in measured.items() for m, metric in metrics.items()}
    keys = {(benchmark, metric): key for key, benchmark, metric in COLUMNS}
    found = []
    for composite in COMPOSITES:
        computed = composite_value(composite, values)
        for column in _REPORTED[composite.name]:
            reported = number(column, fields.get(column))
            if computed is None or reported is None:
                continue
            parts = [(part.weight, fields[keys[part.benchmark, part.metric]]) for part in composite.parts]
            slack = math.fsum(weight * _rounding(text) for weight, text in parts) + _rounding(fields[column])
            if abs(reported - computed) > slack + 1e-9:
                found.append(Contradiction(name, composite.name, reported, computed))
    return tuple(found)


def _rounding(written: object) -> float:
    """How far the number may be from what it was before it was written: half a unit of its last decimal."""
    text = str(written).strip()
    match = re.fullmatch(r"[-+]?\d*\.?(\d*)(%?)", text)
    if match is None:
        return 0.0
    return 0.5 * 10.0 ** -(len(match[1]) + (2 if match[2] else 0))
