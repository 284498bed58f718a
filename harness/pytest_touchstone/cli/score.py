"""``touchstone score``: today's scorers on answers that are there, without a model.

touchstone score BENCHMARK FILE               anybody's answers (``engines.answers``), as a run
touchstone score RUN                          a run's stored answers again
touchstone score RUN -o FOLDER                as a run of its own; -o FILE.csv writes a table
touchstone score --verdicts verdicts.jsonl    another scorer's verdicts, against recorded ones

A file of answers is a checkpoint: ``touchstone run --tasks BENCHMARK --checkpoint answers:FILE``, with any option of
such a run.

Every journalled item of a run is started again from its row, its requests are compared with the stored ones, and it is
sent the stored answers. An item whose row or question has changed since cannot be scored again; it is listed with the
reason.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from pytest_touchstone.cli import run as run_command
from pytest_touchstone.cli.command import Output, add_output, add_places, add_target, run_folder
from pytest_touchstone.core.dataset import read_lines
from pytest_touchstone.core.errors import BenchmarkError, DataError, ExitCode, HarnessError, OptionError
from pytest_touchstone.core.files import shipped, shown_path, unwritable_reason, write_atomic
from pytest_touchstone.core.tasks import shipped_names
from pytest_touchstone.document.formatting import number
from pytest_touchstone.engines.answers.engine import TARGET, AnswersFactory
from pytest_touchstone.engines.answers.files import read_answers
from pytest_touchstone.metrics.soft import temperature_of
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.results.aggregate import summary_of
from pytest_touchstone.results.journal import Journal, latest_records, read_journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import results_csv

CSV: Final = ".csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the three kinds of answers."""
    parser.usage = "touchstone score BENCHMARK FILE ... [options of a run] | RUN | --verdicts [FILE]"
    text = (
        "a benchmark by its name, or its file, and files with answers to it; or a run id, a run's folder, or last; or, "
        "with --verdicts, a file of verdicts"
    )
    parser.add_argument("target", nargs="*", metavar="WHAT", help=text)
    add_output(parser)
    add_target(
        parser, "of a run, write its scores there: a new run's folder, or a file that ends in .csv", "PATH"
    )
    add_places(parser)
    answers = parser.add_argument_group("files of answers")
    for name, text in AnswersFactory.options.items():
        answers.add_argument(f"--{name}", metavar="NAME", help=text)
    verdicts = parser.add_argument_group("verdicts of other scorers")
    text = "compare a file of verdicts with recorded ones; without a file, count the cases of each scorer"
    verdicts.add_argument("--verdicts", action="store_true", default=None, help=text)
    text = "print the cases of a scorer, without their verdicts"
    verdicts.add_argument("--cases", metavar="SCORER", help=text)


OPTIONS: Final = {
    "a run": ("to", "data", "root"),
    "a file of answers": ("data", *AnswersFactory.options),
    "verdicts": ("verdicts", "cases"),
}
"""The options of each kind of answers."""


def run(options: argparse.Namespace) -> Output:
    """Score a run, files of answers or the recorded cases. Raises ``HarnessError``."""
    kind, work = "a run", _rescore_run
    if options.verdicts or options.cases is not None:
        kind, work = "verdicts", _compare_verdicts
    elif len(options.target) > 1:
        kind, work = "a file of answers", _score_answers
    for name in (name for names in OPTIONS.values() for name in names if name not in OPTIONS[kind]):
        if getattr(options, name) is not None:
            flag = "-o" if name == "to" else f"--{name.replace('_', '-')}"
            raise OptionError(f"{flag}: does nothing with {kind}; leave it out (touchstone score --help)")
    if kind == "a file of answers":
        return work(options)
    if options.rest or len(options.target) > 1:
        word = (options.rest or options.target[1:])[0]
        raise OptionError(f"{word}: does nothing with {kind}; leave it out (touchstone score --help)")
    options.target = next(iter(options.target), None)
    if options.target is None and kind != "verdicts":
        raise OptionError("BENCHMARK FILE, or RUN, is missing (touchstone score --help)")
    if kind == "a run" and Path(options.target).is_file():
        raise OptionError(
            f"{options.target}: whose answers? give touchstone score BENCHMARK {options.target}"
        )
    return work(options)


# Files of answers


def _score_answers(options: argparse.Namespace) -> Output:
    """Become a run in which each file is a checkpoint. Raises ``DataError`` for a file without answers."""
    benchmark, *files = options.target
    fields = {name: text for name in AnswersFactory.options if (text := getattr(options, name)) is not None}
    samples = []
    for file in files:
        if "?" in file:
            raise OptionError(f"{file}: a question mark begins options; rename the file")
        found = read_answers(Path(file), answer=fields.get("answer", ""), id_field=fields.get("id", ""))
        samples.append(found.samples)
    words = [f"--checkpoint={TARGET}{file}{'?' * bool(fields)}{urlencode(fields)}" for file in files]
    if min(samples) > 1:  # at which temperature, nobody knows
        words += [f"--eval-samples={min(samples)}", "--eval-set=temperature=1"]
    words += [f"--eval-data={options.data}"] if options.data is not None else []
    # A folder of data may have the name of its benchmark.
    is_file = ".py" in benchmark or (Path(benchmark).exists() and benchmark not in shipped_names())
    words = [*([benchmark] if is_file else []), f"--eval-output={options.output}", *words, *options.rest]
    return run_command.run(argparse.Namespace(rest=words, tasks=[] if is_file else [benchmark]))


# A run


@dataclass(slots=True)
class RescoredRun:
    """The results of a run by the current scorers.

    ``changes`` are items with different scores: by name, before and now (None if the score no longer exists). ``added``
    are scores that the run did not have, with their number of items. ``means`` has, by benchmark and primary score, the
    mean before and now over the items scored both times; ``temperatures`` the fitted temperature of ``p_right`` by
    benchmark. ``records`` has every item with its current scores; items that could not be scored again have the status
    error.
    """

    items: int = 0
    changes: list[ScoreChange] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    unscored: list[tuple[str, str]] = field(default_factory=list)
    means: dict[str, tuple[float, float]] = field(default_factory=dict)
    temperatures: dict[str, float] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


class ScoreChange(NamedTuple):
    """An item with scores that differ from the recorded ones."""

    item: str
    scores: dict[str, tuple[float, float | None]]


def _rescore_run(options: argparse.Namespace) -> Output:
    """Compare current scores with the recorded ones, and write the new ones on request."""
    folder, target = run_folder(options, "run.json"), options.to
    if target is not None:  # results are never replaced
        if target.is_file() or (target.is_dir() and (target.suffix == CSV or any(target.iterdir()))):
            raise HarnessError(
                f"-o {shown_path(target)}: exists; name a new folder, or a new file that ends in {CSV}"
            )
        if (why := unwritable_reason(target.parent if target.suffix == CSV else target)) is not None:
            raise HarnessError(f"-o {shown_path(target)}: {why}; choose another place")
    scored = rescore(folder, data=options.data, root=options.root)
    lines = []
    for item, scores in scored.changes:
        lines.append(
            f"{item}: {', '.join(f'{name} {before} -> {now}' for name, (before, now) in scores.items())}"
        )
    lines += [f"{item}: not scored again: {why}" for item, why in scored.unscored]
    lines += [f"{name}: {number(before)} -> {number(now)}" for name, (before, now) in scored.means.items()]
    if scored.added:
        names = ", ".join(f"{name} ({n})" for name, n in sorted(scored.added.items()))
        lines.append(f"scores that the run had not: {names}")
    lines.append(
        f"{scored.items} items, {len(scored.changes)} with another verdict, {len(scored.unscored)} not scored again"
    )
    data = {field.name: getattr(scored, field.name) for field in fields(scored) if field.name != "records"}
    data["changes"] = [change._asdict() for change in scored.changes]
    if target is not None:
        _write(target, folder, scored)
        data["written"] = str(target)
        lines.append(f"written to {target}")
    return Output(data, "\n".join(lines))


def _write(target: Path, folder: Path, scored: RescoredRun) -> None:
    """Write a table, or a run folder with a journal.

    Commands read the folder, but later runs reuse no scores from it.
    """
    if target.suffix == CSV:
        write_atomic(target, results_csv(summary_of(folder, scored.records)))
        return
    old, new = RunDirectory(folder), RunDirectory(target)
    new.make()
    manifest = old.read_manifest()
    benchmarks = {name: {**facts, "code": ""} for name, facts in manifest.get("benchmarks", {}).items()}
    manifest |= {"run_id": new.run_id, "began": time.time(), "rescored": old.run_id, "benchmarks": benchmarks}
    new.write_manifest(manifest)
    items, declarations, deselected = old.read_collected()
    for name, declaration in declarations.items():
        declarations[name] = replace(declaration, temperature=scored.temperatures.get(name))
    new.write_collected(items, declarations, deselected)
    with Journal(target, "main") as journal:
        for record in scored.records:
            journal.append(record)
    write_results(summary_of(target, scored.records))


def rescore(folder: Path, *, data: str | None = None, root: Path | None = None) -> RescoredRun:
    """Score a run's stored answers again; the run's folder is only read.

    ``data`` and ``root`` replace the data folder and the project's folder that the run had. Raises
    ``HarnessError`` where the run or its benchmarks cannot be read.
    """
    replay = Replay(folder, data=data, root=root)
    scored = RescoredRun()
    sums: dict[str, list[tuple[float, float]]] = {}
    for record in latest_records(read_journal(folder)).values():
        if record.status != "scored":
            scored.records.append(record)
            continue
        scored.items += 1
        try:
            spec = replay.job(record).spec
            primary = spec.primary_score
            scored.temperatures[record.benchmark] = temperature_of(spec)
            now = replay.run(record).record
        except BenchmarkError as error:
            now = replace(record, status="error", scores={}, message=str(error))
        scored.records.append(now)
        if now.status != "scored":
            scored.unscored.append((record.item, now.message or now.status))
            continue
        for name in now.scores.keys() - record.scores.keys():
            scored.added[name] = scored.added.get(name, 0) + 1
        changes = {
            name: (score, now.scores.get(name))
            for name, score in record.scores.items()
            if now.scores.get(name) != score
        }
        if changes:
            scored.changes.append(ScoreChange(record.item, changes))
        if primary in record.scores:
            pair = record.scores[primary], now.scores[primary]
            sums.setdefault(f"{record.benchmark} {primary}", []).append(pair)
    for name, pairs in sums.items():
        before, after = zip(*pairs, strict=True)
        scored.means[name] = (sum(before) / len(pairs), sum(after) / len(pairs))
    return scored


# Verdicts of other scorers


TOLERANCE: Final = 1e-9


def _compare_verdicts(options: argparse.Namespace) -> Output:
    """Return the differences between the verdicts of a file and the recorded ones.

    Without a file, return the recorded cases.
    """
    if options.cases is not None:
        rows = [
            {"scorer": options.cases, "gold": case["gold"], "output": case["output"]}
            for case in cases(options.cases)
        ]
        return Output(rows, "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    if options.target is None:
        counts = {name: len(cases(name)) for name in scorers()}
        return Output(counts, "\n".join(f"{name:18} {count} cases" for name, count in counts.items()))
    data = compare_verdicts(Path(options.target))
    lines = []
    for row in data["differences"]:
        lines.append(f"{row['scorer']}: {row['found']} instead of {row['recorded']} ({row['why']})")
        lines.append(f"    gold   {json.dumps(row['gold'], ensure_ascii=False)}")
        lines.append(f"    output {json.dumps(row['output'], ensure_ascii=False)}")
    lines.append(
        f"{data['compared']} verdicts compared, {len(data['differences'])} different; "
        f"{data['missing']} cases of these scorers without a verdict"
    )
    return Output(data, "\n".join(lines), ExitCode.FAILED if data["differences"] else 0)


def scorers() -> list[str]:
    """Return the scorers that the kit has cases for."""
    return sorted(path.stem for path in _folder().glob("*.jsonl"))


def cases(scorer: str) -> list[dict[str, Any]]:
    """Return the recorded cases of a scorer. Raises ``DataError`` for an unknown name."""
    if scorer not in scorers():
        raise DataError(f"no scorer {scorer!r} in the kit; there are {', '.join(scorers())}")
    return [line.data for line in read_lines(_folder() / f"{scorer}.jsonl")]


def compare_verdicts(path: Path) -> dict[str, Any]:
    """Compare the verdicts of a file with the recorded ones.

    Returns, as plain data, the number compared, the number of cases of its scorers that it lacks, and the differences.
    Raises ``DataError`` naming a row that is not a verdict on a case of the kit.
    """
    recorded: dict[tuple[str, str], dict[str, Any]] = {}
    seen: set[tuple[str, str]] = set()
    differences = []
    for line in read_lines(path):
        row, where = line.data, f"{path}, row {line.number}"
        if absent := sorted({"scorer", "gold", "output", "verdict"} - row.keys()):
            raise DataError(f"{where}: field {absent[0]!r} is missing")
        scorer, verdict = row["scorer"], row["verdict"]
        if not isinstance(verdict, (bool, int, float)):
            raise DataError(f"{where}: verdict {verdict!r} is neither true, false nor a score")
        if not any(name == scorer for name, _ in recorded):
            recorded |= {_key(scorer, case): case for case in cases(scorer)}
        key = _key(scorer, row)
        if key not in recorded:
            raise DataError(f"{where}: the kit has no such case of {scorer}; gold and output must be its")
        seen.add(key)
        case = recorded[key]
        if abs(float(verdict) - float(case["verdict"])) > TOLERANCE:
            facts = {"recorded": case["verdict"], "found": verdict, "why": case["why"]}
            differences.append({"scorer": scorer, "gold": row["gold"], "output": row["output"], **facts})
    return {"compared": len(seen), "missing": len(recorded.keys() - seen), "differences": differences}


def _key(scorer: str, row: dict[str, Any]) -> tuple[str, str]:
    return scorer, json.dumps([row["gold"], row["output"]])


def _folder() -> Path:
    return shipped("conformance") / "verdicts"
