"""Load the candidates of a comparison from the arguments of a command.

RUN                 the id of a run in the results folder, or the folder of a run; if it is gone, its saved results
FILE                a results file in any supported format, or a folder with one
NAME                a checkpoint with saved or imported results: its name, path or fingerprint
RUN#NAME, FILE#NAME    one of several checkpoints; ``:`` works like ``#``

A name matches exactly, or by parts: ``mlm_v2/390`` and ``MLM v2/1536/checkpoint-390`` both select
``mlm_v2/1536/checkpoint-390``, and a step is a part. Case, spaces, ``-`` and ``_`` make no difference.

The newest result of each benchmark counts. Checkpoints of one name but different fingerprints are different candidates.

``--items BENCHMARK=N,...`` gives the numbers of items that a results file lacks.
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
from pytest_touchstone.core.settings import parse_option
from pytest_touchstone.core.text import LISTED, join_names, similar_names
from pytest_touchstone.results import file_path
from pytest_touchstone.results.run_directory import LAST, RUN_FILES, candidate_paths
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
    """Return at least two candidates, the baseline first, each under a unique name.

    Without arguments the two newest runs are compared. A single argument may name several candidates: the checkpoints
    of a run, or a folder, whose two newest result files are read. Raises ``DataError`` listing the available results.
    """
    item_counts = dict(sizes or {})
    if not arguments:
        runs = _runs(output)
        if len(runs) < 2:
            raise DataError(
                f"{len(runs)} runs in {output}/; name two results to compare: runs, files, or checkpoints"
            )
        arguments = [str(folder) for folder in runs[-2:]]
    if len(arguments) == 1:
        candidates = _load_several(arguments[0], output, item_counts)
    else:
        candidates = [load_candidate(argument, output, item_counts) for argument in arguments]
    benchmarks = dict.fromkeys(name for candidate in candidates for name in candidate.entries)
    check_sizes(item_counts, benchmarks)
    return _with_unique_names(candidates)


def read_file(path: Path, sizes: Mapping[str, int]) -> ResultTable:
    """Return every checkpoint of a results file, in any supported format. Raises ``DataError`` for other files."""
    result_format = format_of(path)
    if result_format is not None:
        return result_format.read(path, sizes)
    if path.suffix.lower() in TABLES:
        return read_table(path, sizes)  # its error names the missing columns
    if path.suffix.lower() != ".json":
        raise DataError(f"{path}: no results file; give a .csv, .json or .md file, or the folder of a run")
    read_json(path)
    raise DataError(
        f"{path}: none of the forms that can be read: results of lm-evaluation-harness, "
        '{"model": ..., "results": {TASK: {METRIC: value}}}, or an object with real1, real5, lambada_top1'
    )


class ResultLocation(NamedTuple):
    """An existing path, and the name of one of its checkpoints (empty: the only one)."""

    path: Path
    name: str


def load_candidate(argument: str, output: Path, sizes: Mapping[str, int]) -> CheckpointResults:
    """Return the one checkpoint that an argument names. Raises ``DataError`` for none or several."""
    location = locate_results(argument, output)
    if location is not None and (candidates := _read_path(location.path, sizes)):
        where = str(location.path)
        if location.name:
            return only(candidates, location.name, where)
        if len(candidates) == 1:
            return candidates[0]
        raise DataError(
            f"{where} has {len(candidates)} checkpoints; say which, as {where}#{candidates[0].name}: "
            f"{join_names(candidate.name for candidate in candidates)}"
        )
    return _load_saved(argument, output)


def _load_several(argument: str, output: Path, sizes: Mapping[str, int]) -> list[CheckpointResults]:
    """Return the candidates that a single argument names. Raises ``DataError`` if it names only one."""
    location = locate_results(argument, output)
    if location is not None and not location.name:
        run_format = format_of(location.path) if location.path.is_dir() else None
        files = [location.path] if run_format is not None else result_files(location.path)
        files = files or result_files(location.path, deeper=True)
        candidates = [candidate for file in files[-2:] for candidate in read_file(file, sizes).candidates]
        if (run_format is not None or len(files) > 1) and len(candidates) > 1:
            return candidates
    candidate = load_candidate(argument, output, sizes)
    raise DataError(f"{argument} is one checkpoint, {candidate.name}; name another to compare it with")


def _read_path(path: Path, sizes: Mapping[str, int]) -> list[CheckpointResults]:
    """Return the checkpoints of a file or folder; none for a folder without results, such as a model's weights."""
    if path.is_file() or format_of(path) is not None:
        return list(_read_usable(path, sizes))
    if files := result_files(path):
        return [candidate for file in files[-1:] for candidate in _read_usable(file, sizes)]
    others = result_files(path, deeper=True)
    if len(others) > 1:
        names = join_names(str(file.relative_to(path)) for file in others)
        raise DataError(f"{path} has {len(others)} results files; name one: {names}")
    if others:
        return list(_read_usable(others[0], sizes))
    if any(file_path(path, name).is_file() for name in RUN_FILES):
        raise DataError(f"{path}: no {SUMMARY}: this run has not ended, or was killed before it could sum up")
    return []


def _read_usable(path: Path, sizes: Mapping[str, int]) -> Sequence[CheckpointResults]:
    """Return the checkpoints of a file. Raises ``DataError`` with the first reason if none has a result."""
    table = read_file(path, sizes)
    if not table.candidates and table.bad:
        raise DataError(f"{path}, {table.bad[0]}")
    if not any(candidate.entries for candidate in table.candidates):
        why = next((note for candidate in table.candidates for note in candidate.notes), "it has no results")
        raise DataError(f"{path}: nothing can be compared; {why}")
    return table.candidates


def result_files(folder: Path, *, deeper: bool = False) -> list[Path]:
    """Return the results files of a folder, oldest first.

    With ``deeper``, folders up to two levels below are searched too; if they have none, all JSON files and tables of
    the folder itself are tried whatever their names.
    """
    if not folder.is_dir():
        return []
    below = ("", "*/", "*/*/") if deeper else ("",)
    patterns = {
        f"{folder_pattern}{pattern}"
        for form in result_formats()
        for pattern in form.patterns
        for folder_pattern in below
    }
    paths = {
        path
        for pattern in patterns
        for path in folder.glob(pattern)
        if path.is_file() and not (path.name in _OF_OTHERS and format_of(path) is None)
    }
    if deeper and not paths:
        others = (*folder.glob("*.json"), *(path for ending in TABLES for path in folder.glob(f"*{ending}")))
        paths = {path for path in others if format_of(path) is not None}
    return sorted(paths, key=lambda path: (path.stat().st_mtime, path.name))


def locate_results(argument: str, output: Path) -> ResultLocation | None:
    """Return the run, file or folder of a name (``candidate_paths``), or None; ``last`` is the newest run."""
    last, sign, name = argument.partition("#")
    if last == LAST and not (output / LAST).exists() and (runs := _runs(output)):
        return ResultLocation(runs[-1], name)
    for sign in ("", "#", ":"):
        text, _, name = argument.rpartition(sign) if sign else (argument, "", "")
        for path in candidate_paths(text, output):
            if text and path.exists():
                return ResultLocation(path.parent if path.name == SUMMARY else path, name)
    return None


def _load_saved(argument: str, output: Path) -> CheckpointResults:
    store = ResultStore(output)
    candidates = saved_candidates(store)
    matches = matching_candidates(candidates, argument)
    run_id, sign, name = argument.partition("#")
    if not matches and (of_run := saved_candidates(store, Path(run_id).name)) and (sign or len(of_run) == 1):
        name = name or of_run[0].name
        return with_items(store, only(of_run, name, f"saved results of {Path(run_id).name}"))
    if len(matches) == 1:
        return with_items(store, matches[0])
    if matches:
        prints = join_names(
            f"{next(iter(match.entries.values())).saved.fingerprint[:12]} ({match.name})" for match in matches
        )
        raise DataError(
            f"{argument!r} means {len(matches)} checkpoints with saved results; say which by fingerprint: {prints}"
        )
    names = [path.name for path in _runs(output)] + [candidate.name for candidate in candidates]
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
    """Return the folders of finished runs, oldest first."""
    folders = [path.parent for path in output.glob(f"*/{SUMMARY}")]
    return sorted(folders, key=lambda path: ((path / SUMMARY).stat().st_mtime, path.name))


def _with_unique_names(candidates: list[CheckpointResults]) -> list[CheckpointResults]:
    """Return the candidates with unique names: the origin is added to a shared name, or a number."""
    origins: dict[str, list[str]] = {}
    for candidate in candidates:
        origins.setdefault(candidate.name, []).append(candidate.origin)
    distinct = {  # names that origins alone make unique
        name for name, folder_names in origins.items() if len(folder_names) == len(set(folder_names)) > 1
    }
    renamed = [
        replace(candidate, name=f"{candidate.name} ({candidate.origin})")
        if candidate.name in distinct
        else candidate
        for candidate in candidates
    ]
    seen: Counter[str] = Counter()
    unique = []
    for candidate in renamed:
        seen[candidate.name] += 1
        unique.append(
            replace(candidate, name=f"{candidate.name} [{seen[candidate.name]}]")
            if seen[candidate.name] > 1
            else candidate
        )
    return unique


SHORTEST: Final = 8
"""The digits of a fingerprint that a user must give."""


def saved_candidates(store: ResultStore, run_id: str | None = None) -> list[CheckpointResults]:
    """Return every checkpoint with the newest saved result of each benchmark, in order of the first result.

    With ``run_id``, only results of that run count. Items are not loaded (see ``with_items``).
    """
    by_checkpoint: dict[str, dict[str, BenchmarkScores]] = {}
    for saved in store.find():  # oldest first, so the last of a benchmark stays
        if run_id not in (None, saved.run_id):
            continue
        by_checkpoint.setdefault(saved.checkpoint_key, {})[saved.benchmark] = BenchmarkScores(saved)
    rows = []
    for entries in by_checkpoint.values():
        last = max((entry.saved for entry in entries.values()), key=lambda saved: saved.began)
        origin = f"{'imported from' if last.published else 'saved of run'} {last.run_id}"
        rows.append(CheckpointResults(last.checkpoint, origin, about(last.checkpoint_info), entries))
    return rows


def matching_candidates(candidates: list[CheckpointResults], wanted: str) -> list[CheckpointResults]:
    """Return the candidates that a path or fingerprint (at least 8 digits) identifies, else those of that name."""
    identified = [
        candidate
        for candidate in candidates
        if any(_identifies(wanted, scores.saved) for scores in candidate.entries.values())
    ]
    return identified or select(candidates, wanted)


def with_items(store: ResultStore, candidate: CheckpointResults) -> CheckpointResults:
    """Return the candidate with its items and answers. Raises ``DataError`` if the items cannot be read."""
    saved = {name: entry.saved for name, entry in candidate.entries.items()}
    return replace(
        candidate,
        entries={
            name: BenchmarkScores(result, store.items(result), answers_of(result))
            for name, result in saved.items()
        },
    )


def _identifies(wanted: str, saved: StoredResult) -> bool:
    if len(wanted) >= SHORTEST and saved.fingerprint.startswith(wanted):
        return True
    return bool(saved.path) and os.path.realpath(saved.path) == os.path.realpath(wanted)


def select(candidates: Sequence[CheckpointResults], wanted: str) -> list[CheckpointResults]:
    """Return the candidates of exactly this name, else those that match every part of it."""
    exact = [candidate for candidate in candidates if candidate.name == wanted]
    if exact:
        return exact
    keys = {_normalize(piece) for piece in wanted.split("/") if piece.strip()}
    return [candidate for candidate in candidates if keys and keys <= _match_keys(candidate)]


def only(candidates: Sequence[CheckpointResults], wanted: str, where: str) -> CheckpointResults:
    """Return the candidate that a name selects. Raises ``DataError`` with the choices if it is none or several."""
    matches = select(candidates, wanted)
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = join_names(dict.fromkeys(candidate.name for candidate in matches))
        raise DataError(f"{where}: {wanted!r} means {len(matches)} checkpoints; say which: {names}")
    raise DataError(
        f"{where}: no checkpoint {wanted!r}; there are: {nearest(wanted, [candidate.name for candidate in candidates])}"
    )


def nearest(wanted: str, names: Iterable[str]) -> str:
    """Return the names for a message, those similar to ``wanted`` first."""
    unique = list(dict.fromkeys(names))
    like = similar_names(wanted, unique, LISTED, cutoff=0.3)
    return join_names([*like, *(name for name in unique if name not in like)])


def _match_keys(candidate: CheckpointResults) -> set[str]:
    step = candidate.about.get("step")
    labels = {candidate.name, *candidate.name.split("/")}
    labels |= {
        str(candidate.about[key]) for key in ("series", "seq_len") if candidate.about.get(key) is not None
    }
    labels |= set() if step is None else {str(step), f"step-{step}", f"checkpoint-{step}"}
    return {_normalize(label) for label in labels}


def _normalize(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.strip()).casefold()


_SHORT: Final = {**SETS, "real": "real_coref"}


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``BENCHMARK=N,...`` to item counts by benchmark; raises ``OptionError`` for anything else."""
    item_counts: dict[str, int] = {}
    for pair in (pair.strip() for text in texts for pair in text.split(",")):
        name, size = parse_option("--items", pair, _parse_size)
        item_counts[_SHORT.get(name, name)] = size
    return item_counts


def _parse_size(text: str) -> tuple[str, int]:
    name, _, size = (piece.strip() for piece in text.partition("="))
    if not name or not re.fullmatch(r"[1-9][0-9]*", size):
        raise ValueError("BENCHMARK=N, such as real_coref=2400,ko_lambada=600")
    return name, int(size)


def check_sizes(sizes: Iterable[str], benchmarks: Iterable[str]) -> None:
    """Raise ``DataError`` for a size of a benchmark that the results lack."""
    names = list(benchmarks)
    if strangers := [name for name in sizes if name not in names]:
        raise DataError(
            f"--items: no benchmark {strangers[0]!r} in these results; there are: {join_names(names)}"
        )
