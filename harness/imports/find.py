"""What a person names -> contenders.

RUN                 the id of a run in the results folder, or the folder of a run
FILE                a results file of any form, or a folder with one
NAME                a checkpoint with saved or imported results: its name, path or fingerprint
RUN#NAME, FILE#NAME    one of several checkpoints; a colon does as well
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from harness.errors import DataError
from harness.imports.contender import Contender
from harness.imports.json_files import (
    is_korean_file,
    is_task_file,
    read_json,
    read_korean_file,
    read_task_file,
)
from harness.imports.kept import contender_of, kept, meant
from harness.imports.lm_eval import is_lm_eval, read_lm_eval
from harness.imports.naming import listed, nearest, only
from harness.imports.run_folder import is_run, read_run
from harness.imports.sizes import check_sizes
from harness.imports.tables import Table, read_table
from harness.reports.files import SUMMARY
from harness.saved.store import Store

_PATTERNS: Final = ("*_results.json", "results_*.json", "*/results_*.json", "checkpoints.csv")
_OF_RUNS: Final = ("run.json", "collected.json")


def find_contenders(
    arguments: Sequence[str], *, output: Path, sizes: Mapping[str, int] | None = None
) -> list[Contender]:
    """At least two contenders, the first of which is the baseline, each with a name of its own.

    Without arguments: the two newest runs. A single one may name several: a run's checkpoints, or a folder of
    result files, of which the two newest are taken. Raises ``DataError`` saying what there is.
    """
    known = dict(sizes or {})
    if not arguments:
        arguments = [str(folder) for folder in _newest_runs(output)]
    if len(arguments) == 1:
        found = _several(arguments[0], output, known)
    else:
        found = [_one(argument, output, known) for argument in arguments]
    benchmarks = dict.fromkeys(name for one in found for name in one.entries)
    check_sizes(known, benchmarks)
    return _unique(found)


def read_file(path: Path, sizes: Mapping[str, int]) -> Table:
    """Every checkpoint of a results file, whatever its form. Raises ``DataError`` for a file of none."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return read_table(path, sizes)
    if path.suffix.lower() != ".json":
        raise DataError(f"{path}: no results file; give a .csv or .json file, or the folder of a run")
    _, content = read_json(path)
    if is_lm_eval(content):
        return Table((read_lm_eval(path, sizes),))
    if is_korean_file(content):
        return read_korean_file(path, sizes)
    if is_task_file(content):
        return Table((read_task_file(path, sizes),))
    raise DataError(
        f"{path}: neither of the forms that can be read: results of lm-evaluation-harness, "
        '{"model": ..., "results": {TASK: {METRIC: value}}}, or an object with real1, real5, lambada_top1'
    )


class _Place(NamedTuple):
    """A path that is there, and which of its checkpoints is meant (empty: the only one)."""

    path: Path
    name: str


def _one(argument: str, output: Path, sizes: Mapping[str, int]) -> Contender:
    place = _place(argument, output)
    if place is not None and (found := _read(place.path, sizes)):
        where = str(place.path)
        if place.name:
            return only(found, place.name, where)
        if len(found) == 1:
            return found[0]
        raise DataError(
            f"{where} has {len(found)} checkpoints; say which, as {where}#{found[0].name}: "
            f"{listed(one.name for one in found)}"
        )
    return _kept(argument, output)


def _several(argument: str, output: Path, sizes: Mapping[str, int]) -> list[Contender]:
    """What a single argument names, where that is more than one contender."""
    place = _place(argument, output)
    if place is not None and not place.name:
        files = [] if is_run(place.path) else _files(place.path)
        found = [one for file in files[-2:] for one in read_file(file, sizes).contenders]
        if len(files) > 1 and len(found) > 1:
            return found
        if is_run(place.path) and len(found := read_run(place.path)) > 1:
            return found
    one = _one(argument, output, sizes)
    raise DataError(f"{argument} is one checkpoint, {one.name}; name another to compare it with")


def _read(path: Path, sizes: Mapping[str, int]) -> list[Contender]:
    """The checkpoints of a file or folder; none for a folder without results, such as a checkpoint's own."""
    if path.is_file():
        return list(_all(path, sizes))
    if is_run(path):
        return read_run(path)
    if files := _files(path):
        return [one for file in files[-1:] for one in _all(file, sizes)]
    if any((path / name).is_file() for name in _OF_RUNS):
        raise DataError(f"{path}: no {SUMMARY}: this run has not ended, or was killed before it could sum up")
    return []


def _all(path: Path, sizes: Mapping[str, int]) -> Sequence[Contender]:
    """The checkpoints of a file that has any; raises ``DataError`` for the first bad row where none can be read."""
    table = read_file(path, sizes)
    if not table.contenders and table.bad:
        raise DataError(f"{path}, {table.bad[0]}")
    return table.contenders


def _files(folder: Path) -> list[Path]:
    """The results files of a folder, oldest first."""
    if not folder.is_dir():
        return []
    found = {path for pattern in _PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))


def _place(argument: str, output: Path) -> _Place | None:
    """The file or folder that is named, in the current folder or among the runs."""
    for sign in ("", "#", ":"):
        path, _, name = argument.rpartition(sign) if sign else (argument, "", "")
        for place in (Path(path), output / path):
            if path and place.exists():
                return _Place(place.parent if place.name == SUMMARY else place, name)
    return None


def _kept(argument: str, output: Path) -> Contender:
    store = Store(output)
    candidates = kept(store)
    found = meant(candidates, argument)
    run_id, sign, name = argument.rpartition("#")
    if not found and sign and (of_run := kept(store, Path(run_id).name)):
        return contender_of(store, only(of_run, name, f"saved results of {Path(run_id).name}"))
    if len(found) == 1:
        return contender_of(store, found[0])
    if found:
        prints = listed(f"{next(iter(one.entries.values())).fingerprint[:12]} ({one.name})" for one in found)
        raise DataError(
            f"{argument!r} means {len(found)} checkpoints with saved results; say which by fingerprint: {prints}"
        )
    names = [path.name for path in _runs(output)] + [one.name for one in candidates]
    raise DataError(
        f"{argument}: no such file, run or checkpoint with results in {output}/; there are: "
        f"{nearest(argument, names)}"
    )


def _runs(output: Path) -> list[Path]:
    """The folders of runs that ended, oldest first."""
    found = [path.parent for path in output.glob(f"*/{SUMMARY}")]
    return sorted(found, key=lambda path: ((path / SUMMARY).stat().st_mtime, path.name))


def _newest_runs(output: Path) -> list[Path]:
    runs = _runs(output)
    if len(runs) < 2:
        raise DataError(
            f"{len(runs)} runs in {output}/; name two results to compare: runs, files, or checkpoints"
        )
    return runs[-2:]


def _unique(contenders: list[Contender]) -> list[Contender]:
    """The contenders, those of one name with their origin behind it, or a number where that is the same."""
    origins: dict[str, list[str]] = {}
    for one in contenders:
        origins.setdefault(one.name, []).append(one.origin)
    told = {name for name, found in origins.items() if len(found) == len(set(found)) > 1}
    named = [
        replace(one, name=f"{one.name} ({one.origin})") if one.name in told else one for one in contenders
    ]
    seen: Counter[str] = Counter()
    found = []
    for one in named:
        seen[one.name] += 1
        found.append(replace(one, name=f"{one.name} [{seen[one.name]}]") if seen[one.name] > 1 else one)
    return found
