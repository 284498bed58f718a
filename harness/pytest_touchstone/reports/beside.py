"""The files of ``--eval-beside``: the results of each checkpoint beside the checkpoint itself.

    runs/nouns/checkpoint-655/                     a checkpoint
    runs/nouns/checkpoint-655_eval_results.json    its results: find runs -name '*_eval_results.json'

A file has the fields of ``compare.formats.korean_mlm`` as far as these benchmarks ran, and ``results`` by task
as ``compare.formats.task_json`` has them. ``checkpoint`` is the checkpoint's path. A file of that name which no
run of this harness wrote stays as it is.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.formats import korean_mlm, task_json
from pytest_touchstone.core.files import SCHEMA, file_name, read_json, shown_path, write_json
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.results.summary import Summary, finite

ENDING: Final = "_eval_results.json"


@dataclass(frozen=True, slots=True)
class Beside:
    """The files that were written, the names of checkpoints that are no paths of the user's, and a line on each file
    that was not written."""

    written: list[Path]
    elsewhere: list[str]
    wrong: list[str]

    def lines(self) -> list[str]:
        """Return the lines of the report on what was done."""
        found = []
        if self.written:
            more = f" and {len(self.written) - 1} more" if len(self.written) > 1 else ""
            found.append(f"beside      {shown_path(self.written[0])}{more}")
        if self.elsewhere:
            found.append(f"beside      nothing for {listed(self.elsewhere)}: no path of yours")
        return found

    def error(self) -> str | None:
        """Return one line on what was not written; None where all was."""
        if not self.wrong:
            return None
        more = f" (and {count(len(self.wrong) - 1, 'other file')})" if len(self.wrong) > 1 else ""
        return f"--eval-beside: not written: {self.wrong[0]}{more}; the run's folder has the results"


def write_beside(summary: Summary) -> Beside:
    """Write the file of each checkpoint; one that cannot be written does not keep the others from being written."""
    local = {str(row["name"]): row for row in summary.checkpoints if _is_local(row)}
    scored = dict.fromkeys(result.checkpoint for result in summary.results)
    found = Beside([], [name for name in scored if name not in local], [])
    for name, target in _targets(local):
        if name not in scored:
            continue
        try:
            if (why := _foreign(target)) is None:
                write_json(target, finite(_content(summary, local[name])))
                found.written.append(target)
                continue
        except OSError as error:
            why = error.strerror
        found.wrong.append(f"{shown_path(target)}: {why}")
    return found


def _is_local(row: Mapping[str, Any]) -> bool:
    """Return whether the user named a path: builtin checkpoints and those of the Hub lie in caches."""
    source = str(row.get("source", ""))
    if source.startswith("builtin:"):
        return False
    named = glob.has_magic(source) or Path(source).expanduser().exists()
    return named and Path(str(row["path"])).exists()


def _targets(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Path]]:
    """Yield the file of each checkpoint; where two would have the same (``best.pt`` and ``best.gguf``, or one path with
    two lengths), the others have the checkpoint's name in the run."""
    taken: set[Path] = set()
    for name, row in rows.items():
        path = Path(str(row["path"])).absolute()
        stem = path.name if path.is_dir() else path.stem
        target = path.with_name(f"{stem}{ENDING}")
        if target in taken:
            target = path.with_name(f"{file_name(name)}{ENDING}")
        taken.add(target)
        yield name, target


def _foreign(target: Path) -> str | None:
    """The reason why a file must stay as it is: no run of this harness wrote it. None where there is none, or ours."""
    if not target.exists() or target.is_dir():  # which the system itself keeps from being replaced
        return None
    try:
        content = read_json(target)
    except (OSError, ValueError):
        content = None
    if isinstance(content, Mapping) and content.get("schema") == SCHEMA and "run_id" in content:
        return None
    return "another program's file; move it away"


def _content(summary: Summary, row: Mapping[str, Any]) -> dict[str, Any]:
    name, path = str(row["name"]), str(row["path"])
    tasks = task_json.by_task(summary, name)
    own = next((one for one in korean_mlm.rows(summary) if one["checkpoint"] == name), {})
    about = {key: row.get(key) for key in (*korean_mlm.INFO, "series")}
    first = {"schema": SCHEMA, "checkpoint": path, "model": path, "seq_len": row.get("seq_len")}
    return {**first, **own, **tasks, "checkpoint": path, "model": path, "checkpoint_info": about}
