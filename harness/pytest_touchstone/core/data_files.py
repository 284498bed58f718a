"""The files of a dataset in a folder, and suggestions where there are none.

The dataset ``NAME/FILE`` is, in this order:

    NAME/FILE.jsonl              or NAME/FILE.jsonl.gz, or a folder NAME/FILE/ of JSONL files whose names are the groups
    NAME/processed/FILE.jsonl    or a folder NAME/processed/FILE/
    NAME/processed/SPLIT.jsonl   for rows to be scored: ``validation``, ``valid``, ``val`` and ``dev`` are one split;
                                 a FILE that names no split (HumanEval, problems) is ``test``, else ``validation``.

Few-shot rows are found by their own name alone: those of another split might be the ones that are scored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.resources import shipped
from pytest_touchstone.core.text import alike

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


def nearest(folder: Path, name: str, *, scored: bool) -> str | None:
    """The path in the folder that is most like ``NAME/FILE.jsonl``; None for nothing. For few-shot rows (``scored``
    is false) only a file with a similar name: others may hold the rows that are scored."""
    wanted, _, stem = name.rpartition("/")
    try:
        own = folder / wanted
        if own.is_dir():
            return _inside(folder, own, stem, scored=scored)
        found = _alike(wanted, _folders(folder)) or _alike(
            wanted, [inner for outer in _folders(folder) for inner in _folders(outer)]
        )
        if found is not None:
            return _inside(folder, found, stem, scored=scored)
        if _plain(folder.resolve().name) == _plain(wanted):
            inside = _inside(folder, folder, stem, scored=scored)
            return f"{inside} itself: give the folder above" if inside is not None else None
        loose = _alike(wanted, _files(folder)) or _alike(f"{wanted}{stem}", _files(folder))
    except OSError:
        return None
    return None if loose is None else str(loose.relative_to(folder))


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


def _inside(folder: Path, own: Path, stem: str, *, scored: bool) -> str | None:
    """The file of a dataset's folder that is most like the wanted one, else the folder itself."""
    processed = own / PROCESSED
    files = [*_files(own), *(_files(processed) if processed.is_dir() else ())]
    found = _alike(stem, files) or (next(iter(files), None) if scored else None)
    if found is not None:
        return str(found.relative_to(folder))
    return f"{own.relative_to(folder)}/" if own != folder and scored else None


def _alike(wanted: str, paths: Iterable[Path]) -> Path | None:
    """The path whose name differs only in case and punctuation, else the most similar one."""
    by_name: dict[str, Path] = {}
    for path in paths:
        by_name.setdefault(_plain(_stem(path.name)), path)
    close = alike(_plain(wanted), by_name, cutoff=LIKE)
    return by_name[close[0]] if close else None


def _folders(folder: Path) -> list[Path]:
    """The folders in this one, without those that hold another dataset under its right name."""
    others = {path.name for path in shipped("data").iterdir()}
    return [
        Path(one)
        for one in sorted(os.scandir(folder), key=lambda one: one.name)
        if one.is_dir() and one.name not in others
    ]


def _files(folder: Path) -> list[Path]:
    entries = sorted(os.scandir(folder), key=lambda one: one.name)
    return [Path(one) for one in entries if one.is_file() and one.name.lower().endswith(ENDINGS)]


def _stem(name: str) -> str:
    """The name without the ending of a file of rows."""
    endings = (end for end in ENDINGS if name.lower().endswith(end))
    return name[: -len(next(endings, ""))] if name.lower().endswith(ENDINGS) else name


def _plain(name: str) -> str:
    """Letters and digits alone, in lower case."""
    return re.sub(r"[\W_]+", "", name).casefold()
