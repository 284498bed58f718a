"""``touchstone baseline``: the saved results, and the names that some of them have. ``touchstone accept``: a drop that
is no reason to fail.

touchstone baseline list                 what is saved, by benchmark, the best first; then the names
touchstone baseline set RUN_ID           gives a run's checkpoint a name ("main"), for `pytest --baseline main`
touchstone baseline show NAME|RUN_ID     what a name or a run has
touchstone baseline rm NAME|RUN_ID       takes the name away; or the run's saved results, which are then no baseline
touchstone accept RUN --benchmark B --because "..."    writes into touchstone-accepted.json that B may be as in RUN
"""

from __future__ import annotations

import argparse
import getpass
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_output, add_run, run_folder
from pytest_touchstone.compare.baseline_source import (
    MAIN,
    NamedBaseline,
    list_named_baselines,
    open_source,
    pinned,
    remove_named_baseline,
    results_of,
    set_named_baseline,
)
from pytest_touchstone.compare.baselines import incomplete, shown, worth
from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.gate.accepted import (
    MOST_SIGNS,
    drop_of,
    of_each,
    read_accepted,
    shown_text,
    write_accepted,
)
from pytest_touchstone.compare.gate.config import check_names, read_gate_config
from pytest_touchstone.compare.gate.result import lines_from_json
from pytest_touchstone.core.disk import locked
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.document.formatting import number
from pytest_touchstone.results.run_directory import run_id_of
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import SUMMARY, load_summary

MOST_NAME: Final = 200
"""The signs of a person's name and address."""

TOLD: Final = ("version", "data", "shots", "seed", "limit")
"""The conditions that a list shows; ``show --format json`` has all."""


def set_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``baseline set``."""
    parser.add_argument("run_id", metavar="RUN_ID", help="the run")
    parser.add_argument("--checkpoint", metavar="NAME", help="which of its checkpoints, if it has several")
    parser.add_argument("--name", default=MAIN, metavar="NAME", help=f"the name (default: {MAIN})")
    text = "also where the name has more items of a benchmark now"
    parser.add_argument("--replace", action="store_true", help=text)
    add_output(parser)


def set_run(options: argparse.Namespace) -> Output:
    """Give a run's checkpoint a name."""
    pin, former = set_named_baseline(
        options.output, options.name, options.run_id, options.checkpoint, allow_fewer=options.replace
    )
    text = _pin(pin)
    if former is not None:
        text += f", in place of {former.checkpoint} of run {former.run_id}"
    return Output(asdict(pin), f"{text}; use it with --baseline {pin.name}")


def show_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``baseline show``."""
    parser.add_argument("target", nargs="?", default=MAIN, metavar="NAME|RUN_ID", help=f"default: {MAIN}")
    add_output(parser)


def show_run(options: argparse.Namespace) -> Output:
    """Show all metrics and conditions of a name's or a run's results."""
    pin, found = _meant(options.output, options.target)
    lines = [] if pin is None else [_pin(pin)]
    for saved in found:
        lines.append(f"{saved.benchmark}, {saved.checkpoint} in {saved.run_id}{_about(saved)}{_flaw(saved)}")
        lines += [f"  {one.name:20} {number(one.value)}  n {one.n}" for one in saved.metrics.values()]
        lines.append(f"  {', '.join(f'{name} {shown(value)}' for name, value in saved.conditions.items())}")
    plain = {"name": pin.name if pin is not None else None, "results": [asdict(saved) for saved in found]}
    return Output(plain, "\n".join(lines))


def list_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``baseline list``."""
    parser.add_argument("--benchmark", metavar="NAME", help="only this one")
    add_output(parser)


def list_run(options: argparse.Namespace) -> Output:
    """List the saved results by benchmark, the best first, then the names."""
    saved = best_first(ResultStore(options.output).find(benchmark=options.benchmark))
    pins = list_named_baselines(options.output)
    lines = []
    for benchmark in dict.fromkeys(one.benchmark for one in saved):
        same = [one for one in saved if one.benchmark == benchmark]
        lines.append(f"{benchmark} {same[0].primary}")
        for one in same:
            names = [pin.name for pin in pins if pinned(pin, [one])]
            lines.append(f"  {_row(one)}{'  = ' + ', '.join(names) if names else ''}")
    lines += map(_pin, pins)
    lines += [] if saved else [f"no saved results in {options.output}/"]
    plain = {"results": [_plain(one) for one in saved], "names": [asdict(pin) for pin in pins]}
    return Output(plain, "\n".join(lines))


def remove_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``baseline rm``."""
    parser.add_argument("target", metavar="NAME|RUN_ID", help="a name, or a run whose saved results go")
    parser.add_argument("--checkpoint", metavar="NAME", help="of a run, only this checkpoint's results")
    add_output(parser)


def remove_run(options: argparse.Namespace) -> Output:
    """Take a name away, or a run's saved results."""
    output: Path = options.output
    if options.checkpoint is None and remove_named_baseline(output, options.target):
        text = f"{options.target} is no name of a baseline any more; its results stay"
        return Output({"name": options.target, "results": []}, text)
    options.target = run_id_of(options.target, output)
    _, found = _meant(output, options.target)
    mine = [one for one in found if options.checkpoint in (None, one.checkpoint)]
    if not mine:
        names = ", ".join(dict.fromkeys(one.checkpoint for one in found))
        raise GateError(f"{options.target} has no checkpoint {options.checkpoint!r}; it has {names}")
    store = ResultStore(output)
    for saved in mine:
        store.remove(saved)
    text = f"{len(mine)} saved result(s) of {options.target} removed; the run's folder stays"
    return Output({"name": None, "results": [_plain(one) for one in mine]}, text)


def accept_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``accept``."""
    add_run(parser)
    add = parser.add_argument
    add("--benchmark", action="append", required=True, metavar="NAME", help="whose drop; may be given again")
    add("--because", required=True, metavar="TEXT", help="the reason, for those who review the file")
    add("--metric", metavar="NAME", help="only by this metric (default: all by which it fails)")
    add("--checkpoint", metavar="NAME", help="which of the run's checkpoints, if it has several")


def accept_run(options: argparse.Namespace) -> Output:
    """Note in the project's file that what a gate has failed is accepted."""
    folder = run_folder(options, SUMMARY)
    because = shown_text(options.because)
    if not because or len(because) > MOST_SIGNS:
        raise GateError(f"--because: give a reason, of at most {MOST_SIGNS} characters")
    summary = load_summary(folder)
    lines = _failed(options, lines_from_json(summary.gate or {}), summary.run_id)
    projects = (above / "pyproject.toml" for above in (Path.cwd(), *Path.cwd().parents))
    project = next(filter(Path.is_file, projects), Path("pyproject.toml"))
    config = read_gate_config(project, required=False)
    path = project.parent / config.accepted_file
    entries = {
        (one.checkpoint, one.benchmark): one
        for one in open_source(str(folder.resolve()), options.output, folder=Path()).saved
    }
    by, on = _who(), datetime.now(UTC).date().isoformat()
    try:
        with locked(path.resolve()):  # between the reading and the writing nobody else may write
            known = of_each(read_accepted(path))
            drops = [
                drop_of(
                    line,
                    entries.get((line.checkpoint, line.benchmark)),
                    known.get((line.benchmark, line.metric)),
                    because=because,
                    by=by,
                    on=on,
                    run=summary.run_id,
                )
                for line in lines
            ]
            write_accepted(path, (known | of_each(drops)).values())
    except OSError as error:
        raise GateError(f"{shown_path(path)}: cannot be written ({error.strerror})") from None
    told = [f"{one.benchmark} {one.metric} of {one.checkpoint}: {one.text}" for one in drops]
    text = f"{shown_path(path)} is written: commit it; gates hold to these values from now on"
    return Output({"file": str(path), "accepted": [asdict(one) for one in drops]}, "\n".join([*told, text]))


def _failed(
    options: argparse.Namespace, lines: Sequence[BenchmarkComparison], run_id: str
) -> list[BenchmarkComparison]:
    """The lines that are meant; raises ``GateError`` where one has nothing to accept."""
    if not lines:
        raise GateError(f"{run_id}: no gate has judged it; run it with --gate")
    check_names(
        options.benchmark, dict.fromkeys(one.benchmark for one in lines), f"accept, {run_id}", "benchmark"
    )
    same = [one for one in lines if one.benchmark in options.benchmark]
    for field in ("metric", "checkpoint"):
        if (wanted := getattr(options, field)) is not None:
            check_names([wanted], [getattr(one, field) for one in same], f"accept, {run_id}", field)
            same = [one for one in same if getattr(one, field) == wanted]
    dropped = [
        replace(one, fails=one.fails or (one.accepted,))
        for one in same
        if (one.fails or one.accepted) and not one.invalid and one.comparison.new is not None
    ]
    for name in dict.fromkeys(options.benchmark):
        checkpoints = dict.fromkeys(one.checkpoint for one in dropped if one.benchmark == name)
        if not checkpoints:
            raise GateError(
                f"{name}: no drop of it has failed the gate in {run_id}; there is nothing to accept"
            )
        if len(checkpoints) > 1:
            raise GateError(f"{name} has failed for {', '.join(checkpoints)}; name one with --checkpoint")
    return dropped


def _who() -> str:
    """The person as git knows them, else as the system does."""
    with suppress(OSError):
        words = ["git", "var", "GIT_AUTHOR_IDENT"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        if named := shown_text(done.stdout.rpartition(" ")[0].rpartition(" ")[0]):
            return named[:MOST_NAME]
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "somebody"


def best_first(saved: Sequence[StoredResult]) -> list[StoredResult]:
    """By benchmark, those on most items first, of these the highest primary value; what is not whole last."""
    return sorted(
        saved,
        key=lambda one: (one.benchmark, not one.complete, -one.scored, -worth(one, one.primary), -one.began),
    )


def _meant(output: Path, target: str) -> tuple[NamedBaseline | None, list[StoredResult]]:
    """The baseline that a name or a run id means; raises ``GateError`` where it means nothing."""
    target = run_id_of(target, output)
    pin, found = results_of(target, output, ResultStore(output).find())
    if pin is None and not found:
        raise GateError(f"{target}: no baseline and no run of that name is saved in {output}/")
    return pin, best_first(found)


def _pin(pin: NamedBaseline) -> str:
    return f"{pin.name} is {pin.checkpoint} of run {pin.run_id}"


def _row(saved: StoredResult) -> str:
    metric = saved.metrics[saved.primary]
    told = ", ".join(
        f"{name} {shown(saved.conditions[name])}" for name in TOLD if saved.conditions.get(name) is not None
    )
    which = f"{saved.checkpoint}  {saved.run_id}  ({told})"
    return f"{number(metric.value):>8}  n {metric.n}{_about(saved)}  {which}{_flaw(saved)}"


def _about(saved: StoredResult) -> str:
    return f" ({saved.about})" if saved.about else ""


def _flaw(saved: StoredResult) -> str:
    return "" if saved.complete else f"  NOT WHOLE: {incomplete(saved)}"


def _plain(saved: StoredResult) -> dict[str, Any]:
    metric = saved.metrics[saved.primary]
    return {
        "benchmark": saved.benchmark,
        "checkpoint": saved.checkpoint,
        "step": saved.step,
        "run": saved.run_id,
        "fingerprint": saved.fingerprint,
        "metric": metric.name,
        "value": metric.value,
        "n": metric.n,
        "of": saved.of or None,
        "part": saved.part,
        "mark": saved.mark,
        "whole": saved.complete,
        "conditions": saved.conditions,
    }
