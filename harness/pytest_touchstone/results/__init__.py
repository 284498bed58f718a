"""The results of runs, and the places of a run's files in its folder, ``OUTPUT/RUN_ID/``.

summary.json, results.csv, report.html    at its top: the results
run.json                                  the manifest: command, versions, machine, commit, checkpoints, settings
items/items-WHO.jsonl                     the journal, one file per process

In details/ is the rest, beside what ``reports.files`` writes:

claim               the token of the run whose folder it is, known to its processes alone
collected.json      every collected item, the benchmarks' declarations, what was left out and why
shard.json          with --eval-shard: which of all items these are
schedules.json      with gate_sequential: the order of the items, and the counts after which they are analysed
effort-WHO.json     what answering cost, one file per process
progress-WHO.json   while the run goes on: how far a process is, rewritten a few times a second (``run_directory``)
in-flight-WHO.json  what a process computes now, left where it was killed (``results.reuse``)
quarantine.txt      items that ran alone, because a worker died with them
run.log             what happened when: begin, what was left out, dead workers, end

A run with --eval-config has its logs and the results of benchmarks at the top, where those who read them look.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

TOP: Final = frozenset(("summary.json", "results.csv", "report.html", "run.json"))
ITEMS: Final = "items"
DETAILS: Final = "details"


def file_path(folder: Path, name: str) -> Path:
    """Return the path of a run's file, at the top of its folder or in ``details``."""
    at_top = folder / name
    return at_top if name in TOP or at_top.exists() else folder / DETAILS / name


def file_paths(folder: Path, pattern: str) -> list[Path]:
    """Return a run's files that match a pattern, in ``items`` or ``details``."""
    below = ITEMS if pattern.startswith(ITEMS) else DETAILS
    return sorted(folder.glob(f"{below}/{pattern}"))


def run_of(file: Path) -> Path:
    """Return the folder of the run that contains a file."""
    return file.parent.parent if file.parent.name in (ITEMS, DETAILS) else file.parent
