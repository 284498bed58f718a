"""``touchstone baseline``: the saved results, the names that some of them have, and what a gate could decide.
``touchstone accept``: a drop that is no reason to fail.

touchstone baseline list                 what is saved, by benchmark, the best first; then the names
touchstone baseline set RUN_ID           gives a run's checkpoint a name ("main"), for `pytest --baseline main`
touchstone baseline show NAME|RUN_ID     what a name, a run or a file of references has
touchstone baseline save RUN... FILE     writes the answers of several runs of one model as a file of references
touchstone baseline rm NAME|RUN_ID       takes the name away; or the run's saved results, which are then no baseline
touchstone baseline import FILE          saves published results, to compare with
touchstone baseline plan --drop 3        what a gate could decide about drops of three points, before anything is asked
touchstone accept RUN --benchmark B --because "..."    writes into touchstone-accepted.json that B may be as in RUN
"""

from __future__ import annotations

import argparse
import getpass
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import (
    Output,
    add_items,
    add_output,
    add_run,
    add_settings,
    add_value,
    run_folder,
    terminal,
    write,
)
from pytest_touchstone.cli.compare import parse_share
from pytest_touchstone.compare.baseline_source import (
    MAIN,
    NamedBaseline,
    find_named_results,
    list_named_baselines,
    open_source,
    pinned_results,
    remove_named_baseline,
    set_named_baseline,
)
from pytest_touchstone.compare.baselines import format_condition, incomplete_reason, orient_higher_is_better
from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.formats.references import (
    SUFFIX,
    is_reference_file,
    read_references,
)
from pytest_touchstone.compare.gate.accepted import (
    MOST_SIGNS,
    drop_of,
    of_each,
    read_accepted,
    shown_text,
    write_accepted,
)
from pytest_touchstone.compare.gate.config import check_names, number_of, read_gate_config
from pytest_touchstone.compare.gate.result import lines_from_json
from pytest_touchstone.compare.load import check_sizes, load_candidate, parse_sizes, read_file
from pytest_touchstone.compare.plan import make_plan, planned_benchmarks
from pytest_touchstone.compare.proof import read_effects
from pytest_touchstone.compare.save_references import format_references
from pytest_touchstone.core.disk import locked
from pytest_touchstone.core.errors import GateError, HarnessError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.text import count
from pytest_touchstone.document import Facts, Part, Section, Table, render_text
from pytest_touchstone.document.formatting import number
from pytest_touchstone.results.run_directory import run_id_of
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import SUMMARY, load_summary
from pytest_touchstone.statistics.verdicts import POWER

MOST_NAME: Final = 200
"""The signs of a person's name and address."""

FEWEST_RUNS: Final = 2
"""The runs below which a file of references knows no noise."""

LISTED: Final = ("version", "data", "shots", "seed", "limit")
"""The conditions that a list shows; ``show --format json`` has all."""


# What is saved


def list_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline list``."""
    parser.add_argument("--benchmark", metavar="NAME", help="only this one")
    add_output(parser)


def list_run(options: argparse.Namespace) -> Output:
    """List the saved results by benchmark, the best first, then the names."""
    results = best_first(ResultStore(options.output).find(benchmark=options.benchmark))
    names = list_named_baselines(options.output)
    data = {"results": [_plain(saved) for saved in results], "names": [asdict(name) for name in names]}

    def text() -> str:
        sections = []
        for benchmark in dict.fromkeys(saved.benchmark for saved in results):
            group = [saved for saved in results if saved.benchmark == benchmark]
            conditions = [_conditions(saved) for saved in group]
            differ = len(set(conditions)) > 1
            rows = []
            for saved, text in zip(group, conditions, strict=True):
                metric = saved.metrics[saved.primary]
                called = [f"= {name.name}" for name in names if pinned_results(name, [saved])]
                remarks = "; ".join(filter(None, (*called, text if differ else "", _flaw(saved))))
                rows.append((saved.checkpoint, saved.run_id, number(metric.value), f"{metric.n:,}", remarks))
            header = ("checkpoint", "run", "value", "n", "")
            table = Table(header=header, rows=tuple(rows), text_columns=2, words=True)
            parts = (table,) if differ else (table, conditions[0])
            sections.append(Section(title=f"{benchmark} {group[0].primary}", parts=parts))
        lines = [_meaning(name) for name in names]
        lines += [] if results else [f"no saved results in {options.output}/"]
        sections += [Section(parts=("\n".join(lines),))] if lines else []
        return render_text(sections, **terminal(), dense=True)

    return Output(data, text)


def show_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline show``."""
    metavar = "NAME|RUN_ID|FILE"
    parser.add_argument("target", nargs="?", default=MAIN, metavar=metavar, help=f"default: {MAIN}")
    add_output(parser)


def show_run(options: argparse.Namespace) -> Output:
    """Show all metrics and conditions of the results of a name, a run or a file of references."""
    path = Path(options.target)
    name: NamedBaseline | None = None
    if is_reference_file(path):
        results = [entry.saved for entry in read_references(path).values()]
    else:
        name, results = _find_baseline(options.output, options.target)

    def text() -> str:
        sections = [] if name is None else [Section(parts=(_meaning(name),))]
        for saved in results:
            remarks = "; ".join(filter(None, (saved.about, _flaw(saved))))
            conditions = ", ".join(
                f"{key} {format_condition(value)}" for key, value in saved.conditions.items()
            )
            metrics = [
                (metric.name, number(metric.value), f"{metric.n:,}") for metric in saved.metrics.values()
            ]
            parts: list[Part] = [Table(header=("metric", "value", "n"), rows=tuple(metrics))]
            parts += [Facts((*([("", remarks)] if remarks else []), ("conditions", conditions)))]
            title = f"{saved.benchmark}, {saved.checkpoint} in {saved.run_id}"
            sections.append(Section(title=title, parts=tuple(parts)))
        return render_text(sections, **terminal(), dense=True)

    data = {"name": None if name is None else name.name, "results": [asdict(saved) for saved in results]}
    return Output(data, text)


def save_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline save``."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a run, or RUN#CHECKPOINT: best four, each with its own start of the server",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help=f"the file to write, such as model{SUFFIX}")
    parser.add_argument("--metric", metavar="NAME", help="take this metric where a benchmark has it")
    parser.add_argument("--soft", action="store_true", help="keep p_right too, where a benchmark has it")
    add_output(parser)


def save_run(options: argparse.Namespace) -> Output:
    """Write a file of references. Raises ``HarnessError`` for runs that are none of the same questions."""
    path: Path = options.file
    if path.suffix != SUFFIX:
        raise GateError(f"{path}: a file of references ends in {SUFFIX}; name it last, after the runs")
    runs = [load_candidate(run, options.output, {}) for run in options.runs]
    write(path, format_references(runs, metric=options.metric, soft=options.soft))
    references = read_references(path)
    items = sum(len(entry.items.examples) for entry in references.values())
    text = f"{shown_path(path)} written: {count(len(references), 'benchmark')}, {count(items, 'item')}; commit it"
    if any(entry.saved.reference_runs < FEWEST_RUNS for entry in references.values()):
        text += f"\nnote: one run says nothing of the noise; save {FEWEST_RUNS} at least, best four from four starts"
    return Output(
        {"file": str(path), "benchmarks": {name: asdict(entry.header) for name, entry in references.items()}},
        text,
    )


def set_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline set``."""
    parser.add_argument("run_id", metavar="RUN_ID", help="the run")
    parser.add_argument("--checkpoint", metavar="NAME", help="which of its checkpoints, if it has several")
    parser.add_argument("--name", default=MAIN, metavar="NAME", help=f"the name (default: {MAIN})")
    text = "also where the name has more items of a benchmark now"
    parser.add_argument("--replace", action="store_true", help=text)
    add_output(parser)


def set_run(options: argparse.Namespace) -> Output:
    """Give a run's checkpoint a name."""
    name, former = set_named_baseline(
        options.output, options.name, options.run_id, options.checkpoint, allow_fewer=options.replace
    )
    before = "" if former is None else f", in place of {former.checkpoint} of run {former.run_id}"
    return Output(asdict(name), f"{_meaning(name)}{before}; use it with --baseline {name.name}")


def remove_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline rm``."""
    parser.add_argument("target", metavar="NAME|RUN_ID", help="a name, or a run whose saved results go")
    parser.add_argument("--checkpoint", metavar="NAME", help="of a run, only this checkpoint's results")
    add_output(parser)


def remove_run(options: argparse.Namespace) -> Output:
    """Take a name away, or a run's saved results."""
    output: Path = options.output
    if options.checkpoint is None and remove_named_baseline(output, options.target):
        text = f"{options.target} is no name of a baseline any more; its results stay"
        return Output({"name": options.target, "results": []}, text)
    run_id = run_id_of(options.target, output)
    _, results = _find_baseline(output, run_id)
    removed = [saved for saved in results if options.checkpoint in (None, saved.checkpoint)]
    if not removed:
        names = ", ".join(dict.fromkeys(saved.checkpoint for saved in results))
        raise GateError(f"{run_id} has no checkpoint {options.checkpoint!r}; it has {names}")
    store = ResultStore(output)
    for saved in removed:
        store.remove(saved)
    text = f"{count(len(removed), 'saved result')} of {run_id} removed; the run's folder stays"
    return Output({"name": None, "results": [_plain(saved) for saved in removed]}, text)


def best_first(results: Sequence[StoredResult]) -> list[StoredResult]:
    """Return the results by benchmark: complete ones first, then by items and score."""
    return sorted(
        results,
        key=lambda saved: (
            saved.benchmark,
            not saved.complete,
            -saved.scored,
            -orient_higher_is_better(saved, saved.primary),
            -saved.began,
        ),
    )


def _find_baseline(output: Path, target: str) -> tuple[NamedBaseline | None, list[StoredResult]]:
    """Return the baseline with a name or run id. Raises ``GateError`` for an unknown one."""
    target = run_id_of(target, output)
    name, results = find_named_results(target, output, ResultStore(output).find())
    if name is None and not results:
        raise GateError(f"{target}: no baseline and no run of that name is saved in {output}/")
    return name, best_first(results)


def _meaning(name: NamedBaseline) -> str:
    return f"{name.name} is {name.checkpoint} of run {name.run_id}"


def _conditions(saved: StoredResult) -> str:
    """Return what a list says of the way in which a result was made."""
    conditions = [
        f"{name} {format_condition(saved.conditions[name])}"
        for name in LISTED
        if saved.conditions.get(name) is not None
    ]
    return "; ".join(filter(None, (saved.about, ", ".join(conditions))))


def _flaw(saved: StoredResult) -> str:
    return "" if saved.complete else f"NOT WHOLE: {incomplete_reason(saved)}"


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


# Published results


def import_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline import``."""
    text = "a .csv or .json file of published results"
    parser.add_argument("file", type=Path, metavar="FILE", help=text)
    add_output(parser)
    add_items(parser, "items of a benchmark, where the file does not say")


def import_run(options: argparse.Namespace) -> Output:
    """Import the file. Raises ``HarnessError`` for a mistake and for a file with no result."""
    path: Path = options.file
    if not path.is_file():
        raise HarnessError(f"{path}: no such file; give a .csv or .json file of results")
    sizes = parse_sizes(options.items)
    table = read_file(path, sizes)
    if not any(candidate.entries for candidate in table.candidates):
        notes = [note for candidate in table.candidates for note in candidate.notes]
        why = [*table.bad, *notes, "it has no results"]
        raise HarnessError(f"{path}: nothing could be read; {why[0]}")
    benchmarks = dict.fromkeys(name for candidate in table.candidates for name in candidate.entries)
    check_sizes(sizes, benchmarks)
    store = ResultStore(options.output)
    try:
        for candidate in table.candidates:
            save(store, candidate, time.time())
    except OSError as error:
        raise HarnessError(
            f"cannot write into {store.folder}: {error.strerror}; give --output DIR"
        ) from error
    imported = []
    for candidate in table.candidates:
        metrics = {
            f"{name}:{metric.name}": metric.value
            for name, entry in candidate.entries.items()
            for metric in entry.saved.metrics.values()
        }
        imported.append({"name": candidate.name, **candidate.about, "metrics": metrics})
    data = {
        "file": str(path),
        "saved": str(store.folder),
        "imported": imported,
        "contradictions": [wrong._asdict() for wrong in table.contradictions],
        "not_read": [asdict(row) for row in table.bad],
    }
    return Output(data, "\n".join(_import_lines(path, table, store)))


def save(store: ResultStore, candidate: CheckpointResults, now: float) -> None:
    """Save a candidate's results as if they were scored now."""
    for entry in candidate.entries.values():
        digest = entry.items.digest() if entry.items.examples else ""
        store.save(replace(entry.saved, began=now, items_sha256=digest), entry.items)


def _import_lines(path: Path, table: ResultTable, store: ResultStore) -> Iterator[str]:
    """Yield a line per imported result, then notes on doubtful parts of the file."""
    entries = [(name, entry) for candidate in table.candidates for name, entry in candidate.entries.items()]
    checkpoints = count(len(table.candidates), "checkpoint")
    benchmarks = ", ".join(dict.fromkeys(name for name, _ in entries))
    yield f"{checkpoints} of {path.name} imported into {store.folder}/: {benchmarks}"
    yield from (f"  {candidate.name}" for candidate in table.candidates)
    if unsized := dict.fromkeys(name for name, entry in entries if not entry.saved.scored):
        yield f"numbers of items are not known of {', '.join(unsized)}; --items NAME=N gives them"
    if table.contradictions:
        rows = count(len(table.contradictions), "row")
        yield f"{rows} with a composite that contradicts its own parts by more than rounding:"
        for wrong in table.contradictions:
            yield (
                f"  {wrong.name}: {wrong.composite} is {wrong.reported:.4f} there, {wrong.computed:.4f} by the formula "
                f"({100 * (wrong.reported - wrong.computed):+.2f} points)"
            )
        yield "(composites are always computed from their parts; the written ones are not used)"
    if table.bad:
        yield f"{count(len(table.bad), 'row')} that cannot be read:"
        yield from (f"  {row}" for row in table.bad)
    yield from (f"note: {note}" for candidate in table.candidates for note in candidate.notes)


# What a gate could decide


def plan_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``baseline plan``."""
    text = "only these (default: all with saved results)"
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help=text)
    add_output(parser)
    add_settings(parser, "baseline")
    text = "the loss to plan for, in points, or margins of a metric with a unit (default: 2)"
    add_value(parser, "--drop", _points, text, metavar="POINTS", default="2")
    text = "the chance to find it (default: 0.8, or 80%%)"
    add_value(parser, "--power", parse_share, text, metavar="P", default=str(POWER))
    text = "a loss that does not matter (default: the gate's, else one point)"
    add_value(parser, "--margin", parse_share, text, metavar="D", zero=True)
    text = "chance of a false verdict (default: the gate's, else 0.05)"
    add_value(parser, "--alpha", parse_share, text, metavar="P")
    add_items(parser, "plan for this number of items of a benchmark")
    text = "take this share of items to flip in place of what is saved: 15%%"
    add_value(parser, "--flips", parse_share, text, metavar="SHARE")
    text = "plan for the smallest losses that a proof caught, in place of --drop: its proof.json"
    parser.add_argument("--proof", type=Path, metavar="FILE", help=text)


def plan_run(options: argparse.Namespace) -> Output:
    """Plan the gate of the project in the current folder. Raises ``HarnessError``."""
    from pytest_touchstone.reports.plan import plan_facts, render

    changes = {name: getattr(options, name) for name in ("baseline", "margin", "alpha")}
    config = replace(
        read_gate_config(Path("pyproject.toml"), required=False),
        **{name: value for name, value in changes.items() if value is not None},
    )
    best = source = open_source("best", options.output, folder=Path())
    if config.baseline != "best":
        source = open_source(config.baseline, options.output, folder=Path())
    targets = planned_benchmarks(source, best, parse_sizes(options.items), config)
    names = [target.benchmark for target in targets]
    check_names(options.benchmarks if targets else (), names, "touchstone baseline plan", "benchmark")
    targets = [target for target in targets if target.benchmark in (options.benchmarks or names)]
    effects = {} if options.proof is None else read_effects(options.proof)
    plan = make_plan(
        targets,
        source,
        best,
        config,
        drop=options.drop,
        power=options.power,
        flips=options.flips,
        effects=effects,
    )

    return Output(plan_facts(plan), lambda: render(plan, **terminal()))


def _points(text: str) -> float:
    value = number_of(text.removesuffix("%"))
    if value is None or not 0 < value < 100:
        raise ValueError("points above 0 and below 100: 2 is a loss of 0.02")
    return value / 100


# A drop that is accepted


def accept_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``accept``."""
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
    path = project.parent / read_gate_config(project, required=False).accepted_file
    entries = {
        (entry.checkpoint, entry.benchmark): entry
        for entry in open_source(str(folder.resolve()), options.output, folder=Path()).saved
    }
    by, on = _author(), datetime.now(UTC).date().isoformat()
    try:
        with locked(path.resolve()):  # between the reading and the writing nobody else may write
            accepted = of_each(read_accepted(path))
            drops = [
                drop_of(
                    line,
                    entries.get((line.checkpoint, line.benchmark)),
                    accepted.get((line.benchmark, line.metric)),
                    because=because,
                    by=by,
                    on=on,
                    run=summary.run_id,
                )
                for line in lines
            ]
            write_accepted(path, (accepted | of_each(drops)).values())
    except OSError as error:
        raise GateError(f"{shown_path(path)}: cannot be written ({error.strerror})") from None
    texts = [f"{drop.benchmark} {drop.metric} of {drop.checkpoint}: {drop.text}" for drop in drops]
    texts.append(f"wrote {shown_path(path)}; commit it, and later gates accept these values")
    return Output({"file": str(path), "accepted": [asdict(drop) for drop in drops]}, "\n".join(texts))


def _failed(
    options: argparse.Namespace, lines: Sequence[BenchmarkComparison], run_id: str
) -> list[BenchmarkComparison]:
    """Return the lines that are meant; raises ``GateError`` where one has nothing to accept."""
    if not lines:
        raise GateError(f"{run_id}: no gate has judged it; run it with --gate")
    names = {"benchmark": options.benchmark, "metric": [options.metric], "checkpoint": [options.checkpoint]}
    for field, wanted in names.items():
        if wanted != [None]:
            check_names(wanted, [getattr(line, field) for line in lines], f"accept, {run_id}", field)
            lines = [line for line in lines if getattr(line, field) in wanted]
    dropped = [
        replace(line, fails=line.fails or (line.accepted,))
        for line in lines
        if (line.fails or line.accepted) and not line.invalid and line.comparison.new is not None
    ]
    for name in dict.fromkeys(options.benchmark):
        checkpoints = dict.fromkeys(line.checkpoint for line in dropped if line.benchmark == name)
        if not checkpoints:
            raise GateError(
                f"{name}: no drop of it has failed the gate in {run_id}; there is nothing to accept"
            )
        if len(checkpoints) > 1:
            raise GateError(f"{name} has failed for {', '.join(checkpoints)}; name one with --checkpoint")
    return dropped


def _author() -> str:
    """Return the user's name from git, else from the system."""
    with suppress(OSError):
        words = ["git", "var", "GIT_AUTHOR_IDENT"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        if author := shown_text(done.stdout.rpartition(" ")[0].rpartition(" ")[0]):
            return author[:MOST_NAME]
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "somebody"
