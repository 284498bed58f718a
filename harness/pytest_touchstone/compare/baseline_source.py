"""The source of baselines that ``--baseline`` names, and the names that were given to baselines.

    best          the saved results of the results folder
    none          nothing
    FOLDER        a run's folder; or another results folder, whose best is meant
    FILE          a run's summary.json, or one saved result; or somebody's results of one checkpoint, of which only
                  the changes are shown: nothing is judged by them
    RUN_ID        a run of the results folder
    NAME          what `touchstone baseline set` gave that name

A run is found by its saved results, and without them, as where its folder was copied alone, by its summary and journal.

OUTPUT/baselines/NAME.json names a checkpoint of a run. The results themselves stay where they are saved; removing a
name removes no result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import GateError, HarnessError
from pytest_touchstone.core.files import (
    SCHEMA,
    DamagedError,
    check_kind,
    from_plain,
    read_checked,
    shown_path,
    write_checked,
)
from pytest_touchstone.core.text import did_you_mean, join_names
from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.run_directory import LAST, run_id_of
from pytest_touchstone.results.store import FOLDER, ITEMS_SUFFIX, ResultStore, read_items
from pytest_touchstone.results.store_entry import (
    ItemScores,
    StoredResult,
    results_from_records,
    saved_from_json,
)
from pytest_touchstone.results.summary import SUMMARY, load_summary

NAMED: Final = "baselines"
RESERVED: Final = ("best", "none", LAST)
MAIN: Final = "main"
"""The name that is used where the user gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBaseline:
    """A name for one checkpoint of one run."""

    name: str
    run_id: str
    checkpoint: str
    fingerprint: str


def set_named_baseline(
    output: Path, name: str, run_id: str, checkpoint: str | None = None, *, allow_fewer: bool = False
) -> tuple[NamedBaseline, NamedBaseline | None]:
    """Name the run's checkpoint as a baseline; return the new and the former meaning of the name.

    Raises ``GateError`` for a name that cannot be used, a run without saved results, a run of several checkpoints
    without a named one, and, unless ``allow_fewer``, for a benchmark with fewer items than the name has now.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", name) or name in RESERVED:
        raise GateError(
            f"{name!r} is no name for a baseline; use letters, digits, '.', '_', '-', not {', '.join(RESERVED)}"
        )
    saved, run_id = ResultStore(output).find(), run_id_of(run_id, output)
    if any(result.run_id == name for result in saved):
        raise GateError(f"{name!r} is the id of a run; choose another name for the baseline")
    fingerprints = {result.checkpoint: result.fingerprint for result in saved if result.run_id == run_id}
    if not fingerprints:
        raise GateError(
            f"{run_id}: no saved results of such a run in {output}; `touchstone baseline list` shows them"
        )
    if checkpoint is None and len(fingerprints) > 1:
        raise GateError(
            f"{run_id} has {len(fingerprints)} checkpoints; name one with --checkpoint: {', '.join(fingerprints)}"
        )
    checkpoint = checkpoint or next(iter(fingerprints))
    if checkpoint not in fingerprints:
        raise GateError(f"{run_id} has no checkpoint {checkpoint!r}; it has {', '.join(fingerprints)}")
    pin = NamedBaseline(name=name, run_id=run_id, checkpoint=checkpoint, fingerprint=fingerprints[checkpoint])
    former, fewer = replaced_baseline(
        output, name, {result.benchmark: result.scored for result in pinned_results(pin, saved)}
    )
    if former is not None and fewer and not allow_fewer:
        raise GateError(
            f"{name} is {former.checkpoint} of run {former.run_id}, and {run_id} has fewer items: {join_names(fewer)}; "
            "--replace sets it all the same"
        )
    write_checked(_path(output, name), {"schema": SCHEMA, "kind": "baseline", **asdict(pin)}, indent=2)
    return pin, former


def replaced_baseline(
    output: Path, name: str, scored: Mapping[str, int]
) -> tuple[NamedBaseline | None, list[str]]:
    """Return what the name means now, and the benchmarks that would lose items, with both counts.

    ``scored``: the new one's scored items by benchmark. A name whose file is damaged means nothing.
    """
    try:
        former = read_named_baseline(output, name)
    except GateError:
        former = None
    if former is None:
        return None, []
    fewer = [
        f"{result.benchmark} {scored.get(result.benchmark, 0):,} in place of {result.scored:,}"
        for result in pinned_results(former, ResultStore(output).find())
        if scored.get(result.benchmark, 0) < result.scored
    ]
    return former, fewer


def read_named_baseline(output: Path, name: str) -> NamedBaseline | None:
    """Return the baseline with this name, or None; raises ``GateError`` for a file that cannot be read."""
    path = _path(output, name)
    try:
        data = read_checked(path)
        check_kind(data, "baseline")
        return from_plain(NamedBaseline, data)
    except FileNotFoundError:
        return None
    except (HarnessError, OSError, ValueError) as error:
        raise GateError(f"{path}: cannot be read ({error}); set the baseline again") from None


def list_named_baselines(output: Path) -> list[NamedBaseline]:
    """Return all named baselines, sorted by name."""
    names = sorted(path.stem for path in (output / NAMED).glob("*.json"))
    return [pin for name in names if (pin := read_named_baseline(output, name)) is not None]


def remove_named_baseline(output: Path, name: str) -> bool:
    """Remove the name; return False where nothing had it."""
    if not (path := _path(output, name)).is_file():
        return False
    disk.unlink(path)
    disk.sync_folder(path.parent)
    return True


def find_named_results(
    text: str, output: Path, saved: Sequence[StoredResult]
) -> tuple[NamedBaseline | None, list[StoredResult]]:
    """Return the baseline with this name and its results, or None and the results of the run with this id."""
    pin = read_named_baseline(output, text) if "/" not in text else None
    return pin, [result for result in saved if result.run_id == text] if pin is None else pinned_results(
        pin, saved
    )


def pinned_results(pin: NamedBaseline, saved: Iterable[StoredResult]) -> list[StoredResult]:
    """Return the results of a named baseline."""
    return [
        result
        for result in saved
        if (result.run_id, result.checkpoint, result.fingerprint)
        == (pin.run_id, pin.checkpoint, pin.fingerprint)
    ]


def _path(output: Path, name: str) -> Path:
    return output / NAMED / f"{name}.json"


# Sources of baselines


def open_source(text: str, output: Path, *, folder: Path) -> BaselineSource:
    """Open the source of baselines that ``text`` names; paths are below ``folder``, run ids in ``output``.

    Raises ``HarnessError`` with one line that says what is missing or cannot be read.
    """
    if text in ("best", "none"):
        return (
            _best_source(text, ResultStore(output))
            if text == "best"
            else BaselineSource(name=text, kind="none")
        )
    text = run_id_of(text, output)
    store, path = ResultStore(output), folder / text
    pin, results = find_named_results(text, output, store.find())
    if results:
        return _run_source(text, results, store)
    if pin is not None:
        raise GateError(
            f"{text} names {pin.checkpoint} of run {pin.run_id}, whose saved results are gone; set it again"
        )
    run = path.parent if path.name == SUMMARY else path
    for run_folder in (run,) if "/" in text else (output / text, run):
        if (run_folder / SUMMARY).is_file():
            return _open_run(text, run_folder)
    if path.is_file():
        return _open_file(text, path)
    if (path / FOLDER).is_dir():
        return _best_source(text, ResultStore(path))
    if path.is_dir():
        raise GateError(
            f"{text} is the folder of no finished run (no {SUMMARY}), and no results folder (no {FOLDER}/)"
        )
    raise _unknown_name_error(text, output)


def _best_source(text: str, store: ResultStore) -> BaselineSource:
    return replace(_run_source(text, store.find(), store), kind="best")


def _run_source(text: str, saved: Sequence[StoredResult], store: ResultStore) -> BaselineSource:
    return BaselineSource(name=text, kind="run", saved=saved, items=store.items, damaged=store.left_out)


def _open_file(text: str, path: Path) -> BaselineSource:
    try:
        saved = saved_from_json(read_checked(path))
    except DamagedError as error:
        raise GateError(f"{text}: cannot be read ({error}); name another result") from None
    except (OSError, ValueError, HarnessError):
        return _open_results_file(text, path)
    return _source_of_pairs(text, [(saved, read_items(path.with_suffix(ITEMS_SUFFIX)))])


def _open_results_file(text: str, path: Path) -> BaselineSource:
    """Open the one checkpoint of a results file in any supported format."""
    try:
        candidates = read_file(path, {}).candidates
    except HarnessError as error:
        raise GateError(
            f"{text} is no baseline; name a run's folder, its {SUMMARY}, a saved result, or a file of results "
            f"({error})"
        ) from None
    if len(candidates) != 1:
        raise GateError(f"{text} has {len(candidates)} checkpoints; name a file with the results of one")
    return _source_of_pairs(text, [(entry.saved, entry.items) for entry in candidates[0].entries.values()])


def _source_of_pairs(text: str, pairs: Sequence[tuple[StoredResult, ItemScores]]) -> BaselineSource:
    items = {(saved.checkpoint, saved.benchmark): scores for saved, scores in pairs}
    return BaselineSource(
        name=text,
        kind="run",
        saved=[saved for saved, _ in pairs],
        items=lambda saved: items[saved.checkpoint, saved.benchmark],
    )


def _unknown_name_error(text: str, output: Path) -> GateError:
    runs = [result.run_id for result in ResultStore(output).find()]
    hint = did_you_mean(
        text, [*runs, *(baseline.name for baseline in list_named_baselines(output)), "best", "none"]
    )
    return GateError(
        f"{text}: no run in {shown_path(output)}, no folder or file, and no baseline of that name; {hint}"
        "`touchstone baseline list` shows what there is"
    )


def _open_run(text: str, folder: Path) -> BaselineSource:
    """Open a run by its folder."""
    try:
        summary = load_summary(folder)
    except HarnessError as error:
        raise GateError(f"{error}; name another run") from None
    store = ResultStore(folder.parent)
    if results := [result for result in store.find() if result.run_id == summary.run_id]:
        return _run_source(text, results, store)
    pairs = results_from_records(summary, latest_records(read_journal(folder, exchanges=False)).values())
    if not any(items.examples for _, items in pairs):
        raise GateError(
            f"{text}: has no scored items beside it; name the run's whole folder, or a file of "
            "`touchstone baseline save`"
        )
    return _source_of_pairs(text, pairs)
