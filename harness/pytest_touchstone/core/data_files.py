"""The files of a dataset in a folder, their rows, and suggestions where there are none.

The dataset ``NAME/FILE`` is, in this order:

    NAME/FILE.jsonl              or NAME/FILE.jsonl.gz, or a folder NAME/FILE/ of JSONL files whose names are the groups
    NAME/processed/FILE.jsonl    or a folder NAME/processed/FILE/
    NAME/processed/SPLIT.jsonl   for rows to be scored: ``validation``, ``valid``, ``val`` and ``dev`` are one split;
                                 a FILE that names no split (HumanEval, problems) is ``test``, else ``validation``.

Few-shot rows are found by their own name alone: those of another split might be the ones that are scored.

Rows that a benchmark has itself are a list, a function that returns one, or files beside the benchmark's module. A
function is called when items are collected, in each process, since items are made of rows before any fixture runs.
"""

from __future__ import annotations

import itertools
import json
import re
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import parsed, read_regular, shown_path, unpacked
from pytest_touchstone.core.text import alike, did_you_mean

PROCESSED: Final = "processed"
VALIDATION: Final = ("validation", "valid", "val", "dev")
SPLITS: Final = frozenset((*VALIDATION, "test", "train", "prompt", "shots"))
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
"""The endings of files that may hold rows; only files with the first two are read."""

READ: Final = ENDINGS[:2]

LIKE: Final = 0.6
"""The least similarity of two names, from 0 to 1, at which one is suggested for the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """The source of rows: ``origin`` is "--eval-data", "hub" or "shipped"; ``sha256`` is over their bytes."""

    name: str
    origin: str
    path: str
    rows: int
    sha256: str


def data_files(folder: Path, name: str, *, scored: bool) -> list[Path]:
    """The files of the dataset ``NAME/FILE`` in this folder, none where it has none; ``scored`` is true for rows that
    are evaluated, and false for few-shot examples.

    Raises ``DataError`` where the folder cannot be read.
    """
    try:
        for place in _places(name, scored=scored):
            for ending in READ:
                if (single := folder / f"{place}{ending}").is_file():
                    return [single]
            if several := sorted((folder / place).glob("*.jsonl")):
                return several
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error
    return []


MOST_FILES: Final = 10_000
"""The files of a folder among which the nearest one is looked for."""


def nearest(folder: Path, name: str) -> str | None:
    """Return the file of rows in the folder whose path is most like ``NAME/FILE``; None where none is like it."""
    entries = itertools.chain(*(folder.glob(pattern) for pattern in ("*", "*/*", "*/*/*")))
    files = (path for path in itertools.islice(entries, MOST_FILES) if path.name.lower().endswith(ENDINGS))
    paths = {_words(path): path for path in sorted(str(file.relative_to(folder)) for file in files)}
    near = alike(_words(name), paths, cutoff=LIKE)
    return paths[near[0]] if near else None


def _places(name: str, *, scored: bool) -> Iterator[str]:
    """The paths of a dataset without ending, in order of search."""
    yield name
    folder, _, file = name.rpartition("/")
    names = [file, *(_other_names(file) if scored else ())]
    yield from dict.fromkeys(
        f"{folder}/{PROCESSED}/{one}" if folder else f"{PROCESSED}/{one}" for one in names
    )


def _other_names(file: str) -> tuple[str, ...]:
    """The other names that the file with these rows may have."""
    if file in VALIDATION:
        return VALIDATION
    # sanitized_test is a set of its own: the whole test split is different
    return () if SPLITS.intersection(file.lower().split("_")) else ("test", *VALIDATION)


def _words(path: str) -> str:
    """Return the letters and digits of a path alone, without its ending, in lower case."""
    return re.sub(r"[\W_]+", "", path.partition(".")[0].replace(PROCESSED, "")).casefold()


# Rows


CANONICAL: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True)
"""Makes of a row the text whose hash identifies it."""

OWN_FILES: Final = (".jsonl", ".jsonl.gz")
"""The endings of a file beside the benchmark's module; ``/`` ends the name of a folder of such files."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """One raw row with its place, for messages: file, number from 1, file stem."""

    path: str
    number: int
    stem: str
    data: dict[str, Any]


def read_text(path: Path, most: int | None = None) -> str:
    """The text of a file; raises ``DataError`` where it is none, cannot be read, or has more than ``most`` bytes."""
    try:
        return read_regular(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{shown_path(path)}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {error.strerror or error}") from error


def read_lines(path: Path) -> Iterator[RawRow]:
    """The JSON objects of a file, one per line, also of one packed with gzip; raises ``DataError`` naming file and
    row number of any other line."""
    shown = shown_path(path)
    try:
        data = read_regular(path)
        text = (unpacked(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{shown}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    for number, raw in enumerate(_lines(text), start=1):
        if not raw.strip():
            continue
        try:
            row = parsed(raw)
        except ValueError as error:
            raise DataError(
                f"{shown}, row {number}: not valid JSON ({error}); one JSON object per line"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{shown}, row {number}: a {type(row).__name__}, not a JSON object")
        yield RawRow(shown, number, path.stem, row)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines one by one: a list of all of them takes several times the memory of short ones."""
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    yield text[at:]


def is_own(source: Dataset) -> bool:
    """Return whether the rows belong to the benchmark, whatever the data: given ones, or files beside its module."""
    return source.rows is not None or source.name.endswith((*OWN_FILES, "/"))


def own_lines(spec: Benchmark, source: Dataset) -> tuple[str, list[RawRow]] | None:
    """Return the rows that belong to the benchmark and their place; None where they come from a folder of data.

    Raises ``DataError`` where they cannot be had, and for a name that was meant for a file beside the module.
    """
    if source.rows is not None:
        return f"rows of {spec.name}", list(_given(spec, source.rows))
    if not is_own(source):
        _check_name(spec, source)
        return None
    path = spec.folder / source.name
    files = sorted(path.glob("*.jsonl")) if source.name.endswith("/") else [path]
    if not files or not files[0].is_file():
        beside = [f"{one.name}/" if one.is_dir() else one.name for one in sorted(path.parent.glob("*"))]
        near = did_you_mean(path.name, [one for one in beside if one.endswith((*OWN_FILES, "/"))])
        what = "no folder of .jsonl files" if source.name.endswith("/") else "no such file"
        raise DataError(f"{spec.name}: {shown_path(path)}: {what}; {near}".rstrip("; "))
    return str(path), [line for file in files for line in read_lines(file)]


def _check_name(spec: Benchmark, source: Dataset) -> None:
    """Raise ``DataError`` for the name of a file that cannot be read, or whose ending is missing."""
    name = source.local or ""
    if name.endswith(ENDINGS):
        raise DataError(
            f"{spec.name}: data={name!r}: only .jsonl files are read; for another write a function that returns its "
            "rows as dicts, and give rows=THAT_FUNCTION"
        )
    for ending in OWN_FILES:
        if name and "/" not in name and (spec.folder / f"{name}{ending}").is_file():
            raise DataError(f"{spec.name}: data={name!r} is no file; did you mean {name + ending!r}?")


def _given(spec: Benchmark, rows: object) -> Iterator[RawRow]:
    """Return the rows of a list, or of a function that returns them."""
    place = f"rows of {spec.name}"
    found = _called(place, rows) if callable(rows) else rows
    if isinstance(found, (str, Mapping)) or not isinstance(found, Iterable):
        raise DataError(
            f"{place}: of type {type(found).__name__}; give a list of dicts, or a function that returns one"
        )
    for number, row in enumerate(found, start=1):
        if not isinstance(row, Mapping):
            raise DataError(f"{place}, row {number}: of type {type(row).__name__}, not a dict")
        yield RawRow(place, number, "rows", dict(row))


def _called(place: str, function: Callable[[], object]) -> object:
    try:
        found = function()
        return found if isinstance(found, (str, Mapping)) or not isinstance(found, Iterable) else list(found)
    except pytest.fail.Exception:
        raise DataError(
            f"{place}: a fixture, which runs later; give the function without the fixture"
        ) from None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({shown_path(Path(last.filename))}:{last.lineno})"
        raise DataError(f"{place}: {told}") from error
