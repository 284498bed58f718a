"""The results of one checkpoint, wherever they are written: the form that comparisons take."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import step_in_name
from pytest_touchstone.core.coverage import scored_mark
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import read_regular
from pytest_touchstone.results.store_entry import IMPORTED_SUFFIX, ItemScores, RecordLocations, StoredResult
from pytest_touchstone.results.summary import Metric

AS_PUBLISHED: Final = "as published"
"""The ``method`` of a metric that was read from a table."""

DIGITS: Final = 6
"""The digits that an error must have for a number of items to be inferred from it."""

_STEP_OF_FILE: Final = re.compile(
    r"(?:.*[_.-])?(?:checkpoint|global_?step|step|iter(?:ation)?)[_-]?(\d+)(?:[_-](?:eval|results))*"
)

NO_ITEMS: Final = ItemScores(examples=[], rows=[], groups=[], clusters=[], scores={})


@dataclass(frozen=True, slots=True)
class BenchmarkScores:
    """One benchmark of a candidate.

    ``items`` is empty where only totals are known. ``answers`` is where requests and answers lie: the folder of a
    run, or a file of samples; None where they were not kept. ``lines`` are the items' records in a run's journal, None
    where they must be looked for.
    """

    saved: StoredResult
    items: ItemScores = NO_ITEMS
    answers: Path | None = None
    lines: RecordLocations | None = None


@dataclass(frozen=True, slots=True)
class CheckpointResults:
    """A checkpoint with its results by benchmark.

    ``origin`` names the place they were read from. ``about`` has the known facts of the checkpoint: series, step,
    epoch, seq_len. ``notes`` are what a reader must know before believing the numbers. ``composites`` are those that
    the run has computed of its items.
    """

    name: str
    origin: str
    about: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, BenchmarkScores] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    composites: dict[str, Metric] = field(default_factory=dict)


class ResultSource(NamedTuple):
    """A file: its name, and the SHA-256 of its content."""

    file: str
    digest: str


def series_and_step_from_path(path: str) -> dict[str, Any]:
    """Return the series and step in a path such as ``runs/nouns/checkpoint-300``; empty for any other path."""
    folder, _, name = path.rstrip("/").rpartition("/")
    step = step_in_name(name)
    return {} if step is None or not folder else {"series": folder, "step": step}


def series_and_step_from_file(path: Path, series: str) -> dict[str, Any]:
    """Return the series and the step that end a results file's name (``model_step1000_results.json``).

    Empty if ``series``, the model's own name, is only a step: its training is unknown then.
    """
    named = _STEP_OF_FILE.fullmatch(path.stem)
    return {"series": series, "step": int(named[1])} if named and step_in_name(series) is None else {}


def source_of(path: Path) -> tuple[ResultSource, bytes]:
    """Return the file and its content; raises ``DataError`` if it cannot be read."""
    try:
        data = read_regular(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    return ResultSource(path.name, hashlib.sha256(data).hexdigest()), data


def published(name: str, value: float, *, stderr: float | None = None, n: int = 0) -> Metric:
    """Return a published metric, with its standard error and number of items (0: unknown) if given."""
    return Metric(name=name, value=value, low=None, high=None, stderr=stderr, n=n, method=AS_PUBLISHED)


def result_from_totals(
    benchmark: str,
    metrics: Mapping[str, Metric],
    *,
    primary: str,
    source: ResultSource,
    name: str,
    about: Mapping[str, Any] = MappingProxyType({}),
    conditions: Mapping[str, Any] | None = None,
    aggregate: Mapping[str, dict[str, str]] | None = None,
    invalid: str | None = None,
    of: int | None = None,
    mark: str | None = None,
) -> StoredResult:
    """Return the result of a benchmark from its totals alone.

    The fingerprint is derived from the file and the name, so that rows of different files never share one. Raises
    ``DataError`` for a standard error below 0.
    """
    if wrong := [metric for metric in metrics.values() if metric.stderr is not None and metric.stderr < 0]:
        raise DataError(
            f"{source.file}, {benchmark} {wrong[0].name}: a standard error of {wrong[0].stderr:g}; none is below 0"
        )
    n = metrics[primary].n
    digest = hashlib.sha256(f"{source.digest}\0{name}".encode("utf-8", "backslashreplace")).hexdigest()
    return StoredResult(
        run_id=source.file,
        directory="",
        began=0.0,
        checkpoint=name,
        fingerprint=f"{digest}{IMPORTED_SUFFIX}",
        path="",
        step=about.get("step"),
        benchmark=benchmark,
        primary=primary,
        conditions=dict(conditions or {}),
        aggregate=dict(aggregate or {}),
        metrics={primary: metrics[primary], **metrics},
        collected=n,
        scored=n,
        skipped=0,
        faults=0,
        invalid=invalid,
        items_sha256="",
        checkpoint_info={key: value for key, value in about.items() if value is not None},
        of=of or 0,
        mark=(scored_mark(n, of or 0) if n else "") if mark is None else mark,
    )


def inferred_items(value: float, stderr: float | None) -> int | None:
    """Return the number of items behind a share with this standard error, if only one is possible.

    The error of n right or wrong items is sqrt(p (1 - p) / (n - 1)). A graded score leads to no whole number of items
    with a whole number of right ones, and gives None. So does an error of few digits, which may have been rounded.
    """
    if not stderr or not 0 < value < 1 or _digits(stderr) < DIGITS:
        return None
    exact = value * (1 - value) / stderr**2 + 1
    n = round(exact)
    if n < 2 or not math.isfinite(exact):
        return None
    whole = abs(exact - n) <= 1e-6 * n and abs(value * n - round(value * n)) <= 1e-6 * n
    return n if whole else None


def _digits(value: float) -> int:
    """Return the number of significant digits of a number."""
    return len(f"{value:.15e}".partition("e")[0].replace(".", "").rstrip("0"))
