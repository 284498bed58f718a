"""The command ``touchstone``: reads and writes results; running is pytest's.

    touchstone fetch NAME      gets a builtin checkpoint into the user's cache
    touchstone list            the runs of a results folder
    touchstone report RUN      the table of a run, again
    touchstone show PATH       what a checkpoint is

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
from typing import Any, Final

from harness import __version__
from harness.errors import HarnessError

MISTAKE: Final = 4
"""Exit code for a person's mistake, as pytest's."""


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
        return MISTAKE
    except BrokenPipeError:  # `touchstone list | head`
        sys.stderr.close()
    return 0


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
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], Any], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run)
    return parser


def _fetch(options: argparse.Namespace) -> dict[str, Any]:
    from harness.fetch import fetch

    path = fetch(options.name, say=lambda text: print(text, file=sys.stderr if options.json else sys.stdout))
    return {"name": options.name, "path": str(path)}


def _list(options: argparse.Namespace) -> list[dict[str, Any]]:
    from harness.reports.files import load_summary

    rows: list[dict[str, Any]] = []
    for folder in sorted(Path(options.output).glob("*/summary.json")):
        summary = load_summary(folder.parent)
        names = sorted({result.benchmark for result in summary.results})
        checkpoints = [str(one["name"]) for one in summary.checkpoints]
        items = sum(result.collected for result in summary.results if result.group is None)
        rows.append(
            {
                "run": summary.run_id,
                "checkpoints": checkpoints,
                "benchmarks": names,
                "items": items,
                "faults": len(summary.faults),
            }
        )
    if not options.json:
        for row in rows:
            faults = f", {row['faults']} faults" if row["faults"] else ""
            what = f"{', '.join(row['checkpoints'])}: {', '.join(row['benchmarks'])}"
            print(f"{row['run']}  {what} ({row['items']} items{faults})")
        if not rows:
            print(f"no runs in {options.output}/")
    return rows


def _report(options: argparse.Namespace) -> dict[str, Any]:
    from harness.reports.files import load_summary
    from harness.reports.json_report import eval_section
    from harness.reports.terminal import render

    folder = Path(options.target)
    if not (folder / "summary.json").is_file():
        folder = Path(options.output) / options.target
    if not (folder / "summary.json").is_file():
        raise HarnessError(
            f"{options.target}: no such run in {options.output}/; `touchstone list` shows them"
        )
    summary = load_summary(folder)
    if not options.json:
        import shutil

        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(render(summary, shutil.get_terminal_size((100, 24)).columns, color))
    return eval_section(summary)


def _show(options: argparse.Namespace) -> list[dict[str, Any]]:
    from harness.checkpoints import fingerprint, recognise

    rows = []
    for info in recognise(options.source, seq_len=None):
        row = {**asdict(info), "path": str(info.path), "fingerprint": fingerprint(info)}
        row["answers"] = [kind.__name__ for kind in info.serves]
        rows.append(row)
        if not options.json:
            for name, value in row.items():
                if value not in (None, {}, ""):
                    print(f"{name:13} {', '.join(value) if isinstance(value, list) else value}")
            print()
    return rows


if __name__ == "__main__":
    sys.exit(main())
