"""The candidates that a user names.

RUN                 the id of a run in the results folder, or the folder of a run; where that is gone, the saved results
FILE                a results file of any form, or a folder with one
NAME                a checkpoint with saved or imported results: its name, path or fingerprint
RUN#NAME, FILE#NAME    one of several checkpoints; a colon does as well

Saved and imported results as candidates: by the checkpoint's name, path or fingerprint.

A name is meant by itself, or by parts that all fit it: ``mlm_v2/390`` and ``MLM v2/1536/checkpoint-390`` mean
``mlm_v2/1536/checkpoint-390``; a step is a part. Case does not matter, nor do spaces, ``-`` and ``_``.

Of each benchmark the newest entry counts. Checkpoints of one name but different fingerprints are different candidates.

``--items BENCHMARK=N,...``: numbers of items that a results file does not give.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.formats import format_of, result_formats
from pytest_touchstone.compare.formats.base import ResultTable, read_json
from pytest_touchstone.compare.formats.korean_mlm import SETS, TABLES, read_table
from pytest_touchstone.compare.formats.run import about, answers_of
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.settings import read_as
from pytest_touchstone.core.text import LISTED, join_names, similar_name
from pytest_touchstone.results import file_path
from pytest_touchstone.results.run_directory import LAST, OF_RUNS, places_of
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import SUMMARY

_OF_OTHERS: Final = (
    "results.json",
    *(f"{name}_results.json" for name in ("all", "train", "eval", "test", "predict")),
)
"""Names that other programs use too, such as Hugging Face's Trainer for files beside its checkpoints."""


def find_candidates(
    arguments: Sequence[str], *, output: Path, sizes: Mapping[str, int] | None = None
) -> list[CheckpointResults]:
    """At least two candidates, the first of which is the baseline, each with a name of its own.

    Without arguments: the two newest runs. A single one may name several: a run's checkpoints, or a folder of
    result files, of which the two newest are taken. Raises ``DataError`` saying what there is.
    """
    known = dict(sizes or {})
    if not arguments:
        runs = _runs(output)
        if len(runs) < 2:
            raise DataError(
                f"{len(runs)} runs in {output}/; name two results to compare: runs, files, or checkpoints"
            )
        arguments = [str(folder) for folder in runs[-2:]]
    if len(arguments) == 1:
        found = _several(arguments[0], output, known)
    else:
        found = [_one(argument, output, known) for argument in arguments]
    benchmarks = dict.fromkeys(name for one in found for name in one.entries)
    check_sizes(known, benchmarks)
    return _unique(found)


def read_file(path: Path, sizes: Mapping[str, int]) -> ResultTable:
    """Every checkpoint of a results file, whatever its form. Raises ``DataError`` for a file of none."""
    known = format_of(path)
    if known is not None:
        return known.read(path, sizes)
    if path.suffix.lower() in TABLES:
        return read_table(path, sizes)  # which says what its columns lack
    if path.suffix.lower() != ".json":
        raise DataError(f"{path}: no results file; give a .csv, .json or .md file, or the folder of a run")
    read_json(path)
    raise DataError(
        f"{path}: none of the forms that can be read: results of lm-evaluation-harness, "
        '{"model": ..., "results": {TASK: {METRIC: value}}}, or an object with real1, real5, lambada_top1'
    )


class ResultPlace(NamedTuple):
    """A path that is there, and which of its checkpoints is meant (empty: the only one)."""

    path: Path
    name: str


def _one(argument: str, output: Path, sizes: Mapping[str, int]) -> CheckpointResults:
    place = place_of(argument, output)
    if place is not None and (found := _read(place.path, sizes)):
        where = str(place.path)
        if place.name:
            return only(found, place.name, where)
        if len(found) == 1:
            return found[0]
        raise DataError(
            f"{where} has {len(found)} checkpoints; say which, as {where}#{found[0].name}: "
            f"{join_names(one.name for one in found)}"
        )
    return _saved(argument, output)


def _several(argument: str, output: Path, sizes: Mapping[str, int]) -> list[CheckpointResults]:
    """The candidates that a single argument names, where it names several."""
    place = place_of(argument, output)
    if place is not None and not place.name:
        own = format_of(place.path) if place.path.is_dir() else None
        files = [place.path] if own is not None else result_files(place.path)
        files = files or result_files(place.path, deeper=True)
        found = [one for file in files[-2:] for one in read_file(file, sizes).candidates]
        if (own is not None or len(files) > 1) and len(found) > 1:
            return found
    one = _one(argument, output, sizes)
    raise DataError(f"{argument} is one checkpoint, {one.name}; name another to compare it with")


def _read(path: Path, sizes: Mapping[str, int]) -> list[CheckpointResults]:
    """The checkpoints of a file or folder; none for a folder without results, such as a checkpoint's own."""
    if path.is_file() or format_of(path) is not None:
        return list(_all(path, sizes))
    if files := result_files(path):
        return [one for file in files[-1:] for one in _all(file, sizes)]
    others = result_files(path, deeper=True)
    if len(others) > 1:
        names = join_names(str(one.relative_to(path)) for one in others)
        raise DataError(f"{path} has {len(others)} results files; name one: {names}")
    if others:
        return list(_all(others[0], sizes))
    if any(file_path(path, name).is_file() for name in OF_RUNS):
        raise DataError(f"{path}: no {SUMMARY}: this run has not ended, or was killed before it could sum up")
    return []


def _all(path: Path, sizes: Mapping[str, int]) -> Sequence[CheckpointResults]:
    """The checkpoints of a file that has any; raises ``DataError`` with the first reason where none can be read."""
    table = read_file(path, sizes)
    if not table.candidates and table.bad:
        raise DataError(f"{path}, {table.bad[0]}")
    if not any(one.entries for one in table.candidates):
        why = next((note for one in table.candidates for note in one.notes), "it has no results")
        raise DataError(f"{path}: nothing can be compared; {why}")
    return table.candidates


def result_files(folder: Path, *, deeper: bool = False) -> list[Path]:
    """The results files of a folder, oldest first; ``deeper``: also those up to two folders below, and where there is
    none at all, those of the folder that have other names."""
    if not folder.is_dir():
        return []
    below = ("", "*/", "*/*/") if deeper else ("",)
    patterns = {f"{one}{pattern}" for form in result_formats() for pattern in form.patterns for one in below}
    found = {
        path
        for pattern in patterns
        for path in folder.glob(pattern)
        if path.is_file() and not (path.name in _OF_OTHERS and format_of(path) is None)
    }
    if deeper and not found:
        others = (*folder.glob("*.json"), *(one for ending in TABLES for one in folder.glob(f"*{ending}")))
        found = {path for path in others if format_of(path) is not None}
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))


def place_of(argument: str, output: Path) -> ResultPlace | None:
    """The run of that name, or the file or folder (``places_of``); ``last`` is the newest run."""
    last, sign, name = argument.partition("#")
    if last == LAST and not (output / LAST).exists() and (runs := _runs(output)):
        return ResultPlace(runs[-1], name)
    for sign in ("", "#", ":"):
        path, _, name = argument.rpartition(sign) if sign else (argument, "", "")
        for place in places_of(path, output):
            if path and place.exists():
                return ResultPlace(place.parent if place.name == SUMMARY else place, name)
    return None


def _saved(argument: str, output: Path) -> CheckpointResults:
    store = ResultStore(output)
    candidates = saved_candidates(store)
    found = matching_candidates(candidates, argument)
    run_id, sign, name = argument.partition("#")
    if not found and (of_run := saved_candidates(store, Path(run_id).name)) and (sign or len(of_run) == 1):
        name = name or of_run[0].name
        return with_items(store, only(of_run, name, f"saved results of {Path(run_id).name}"))
    if len(found) == 1:
        return with_items(store, found[0])
    if found:
        prints = join_names(
            f"{next(iter(one.entries.values())).saved.fingerprint[:12]} ({one.name})" for one in found
        )
        raise DataError(
            f"{argument!r} means {len(found)} checkpoints with saved results; say which by fingerprint: {prints}"
        )
    names = [path.name for path in _runs(output)] + [one.name for one in candidates]
    if Path(argument).is_dir():
        raise DataError(
            f"{argument}: a folder without results: no run that ended, no results file, and no checkpoint with results "
            f"in {output}/; there are: {nearest(argument, names)}"
        )
    raise DataError(
        f"{argument}: no such file, run or checkpoint with results in {output}/; there are: "
        f"{nearest(argument, names)}"
    )


def _runs(output: Path) -> list[Path]:
    """The folders of runs that ended, oldest first."""
    found = [path.parent for path in output.glob(f"*/{SUMMARY}")]
    return sorted(found, key=lambda path: ((path / SUMMARY).stat().st_mtime, path.name))


def _unique(candidates: list[CheckpointResults]) -> list[CheckpointResults]:
    """The candidates; names that several have are followed by the origin, or by a number where that is the same
    too."""
    origins: dict[str, list[str]] = {}
    for one in candidates:
        origins.setdefault(one.name, []).append(one.origin)
    told = {name for name, found in origins.items() if len(found) == len(set(found)) > 1}
    named = [
        replace(one, name=f"{one.name} ({one.origin})") if one.name in told else one for one in candidates
    ]
    seen: Counter[str] = Counter()
    found = []
    for one in named:
        seen[one.name] += 1
        found.append(replace(one, name=f"{one.name} [{seen[one.name]}]") if seen[one.name] > 1 else one)
    return found


SHORTEST: Final = 8
"""The digits of a fingerprint that a user must give."""


def saved_candidates(store: ResultStore, run_id: str | None = None) -> list[CheckpointResults]:
    """The newest saved results of every checkpoint, of all runs or of one, in order of their first; their items are
    not read yet."""
    found: dict[str, dict[str, BenchmarkScores]] = {}
    for saved in store.find():  # oldest first, so the last of a benchmark stays
        if run_id not in (None, saved.run_id):
            continue
        found.setdefault(saved.checkpoint_key, {})[saved.benchmark] = BenchmarkScores(saved)
    rows = []
    for entries in found.values():
        last = max((entry.saved for entry in entries.values()), key=lambda saved: saved.began)
        origin = f"{'imported from' if last.published else 'saved of run'} {last.run_id}"
        rows.append(CheckpointResults(last.checkpoint, origin, about(last.checkpoint_info), entries))
    return rows


def matching_candidates(candidates: list[CheckpointResults], wanted: str) -> list[CheckpointResults]:
    """The candidates whose path or fingerprint (from 8 digits on) is wanted, else those whose name is."""
    sure = [one for one in candidates if any(_is(entry.saved, wanted) for entry in one.entries.values())]
    return sure or select(candidates, wanted)


def with_items(store: ResultStore, one: CheckpointResults) -> CheckpointResults:
    """The checkpoint with its items and answers. Raises ``DataError`` where the items cannot be read."""
    saved = {name: entry.saved for name, entry in one.entries.items()}
    return replace(
        one,
        entries={
            name: BenchmarkScores(own, store.items(own), answers_of(own)) for name, own in saved.items()
        },
    )


def _is(saved: StoredResult, wanted: str) -> bool:
    if len(wanted) >= SHORTEST and saved.fingerprint.startswith(wanted):
        return True
    return bool(saved.path) and os.path.realpath(saved.path) == os.path.realpath(wanted)


def select(candidates: Sequence[CheckpointResults], wanted: str) -> list[CheckpointResults]:
    """The candidates that are meant: those of exactly this name if there are any, else those that all parts fit."""
    exact = [one for one in candidates if one.name == wanted]
    if exact:
        return exact
    parts = [_plain(part) for part in wanted.split("/") if part.strip()]
    return [one for one in candidates if parts and all(part in _parts(one) for part in parts)]


def only(candidates: Sequence[CheckpointResults], wanted: str, where: str) -> CheckpointResults:
    """The one that is meant; where that is none or several, raises ``DataError`` with a list of what there is."""
    found = select(candidates, wanted)
    if len(found) == 1:
        return found[0]
    if found:
        names = join_names(dict.fromkeys(one.name for one in found))
        raise DataError(f"{where}: {wanted!r} means {len(found)} checkpoints; say which: {names}")
    raise DataError(
        f"{where}: no checkpoint {wanted!r}; there are: {nearest(wanted, [one.name for one in candidates])}"
    )


def nearest(wanted: str, names: Iterable[str]) -> str:
    """The names for a message, those like the wanted one first."""
    known = list(dict.fromkeys(names))
    like = similar_name(wanted, known, LISTED, cutoff=0.3)
    return join_names([*like, *(name for name in known if name not in like)])


def _parts(one: CheckpointResults) -> set[str]:
    step = one.about.get("step")
    found = {one.name, *one.name.split("/")}
    found |= {str(one.about[key]) for key in ("series", "seq_len") if one.about.get(key) is not None}
    found |= set() if step is None else {str(step), f"step-{step}", f"checkpoint-{step}"}
    return {_plain(part) for part in found}


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.strip()).casefold()


_SHORT: Final = {**SETS, "real": "real_coref"}


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """The number of items by benchmark; raises ``OptionError`` for anything else."""
    found: dict[str, int] = {}
    for part in (one.strip() for text in texts for one in text.split(",")):
        name, size = read_as("--items", part, _size)
        found[_SHORT.get(name, name)] = size
    return found


def _size(text: str) -> tuple[str, int]:
    name, _, size = (piece.strip() for piece in text.partition("="))
    if not name or not re.fullmatch(r"[1-9][0-9]*", size):
        raise ValueError("BENCHMARK=N, such as real_coref=2400,ko_lambada=600")
    return name, int(size)


def check_sizes(sizes: Iterable[str], benchmarks: Iterable[str]) -> None:
    """Raises ``DataError`` for a size of a benchmark that the results do not have."""
    known = list(benchmarks)
    if strangers := [name for name in sizes if name not in known]:
        raise DataError(
            f"--items: no benchmark {strangers[0]!r} in these results; there are: {join_names(known)}"
        )
