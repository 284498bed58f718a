"""The folder of a run: what its processes write there and read, and the manifest."""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import HarnessError, JournalError
from pytest_touchstone.core.files import (
    SCHEMA,
    from_plain,
    read_checked,
    read_json,
    read_regular,
    shown_path,
    write_atomic,
    write_checked,
)
from pytest_touchstone.core.keys import redact, redact_value
from pytest_touchstone.core.text import collapse_lines, did_you_mean
from pytest_touchstone.results import DETAILS, ITEMS, file_path, file_paths, run_of
from pytest_touchstone.results.summary import (
    SUMMARY,
    CollectedItem,
    Declaration,
    check_manifest,
)
from pytest_touchstone.results.usage import Usage

COLUMNS: Final = tuple(column.name for column in fields(CollectedItem))
PACKAGES: Final = (
    *("pytest-touchstone", "pytest", "pytest-xdist", "torch", "transformers", "tokenizers"),
    *("kiwipiepy", "kiwipiepy_model", "numpy"),
)
PREPARATIONS: Final = ("collected.json", "schedules.json", "shard.json")
"""Files that are written into the folder before anything is asked."""

LOGS: Final = ("run.log", "errors.log")

CLAIM: Final = "claim"
"""The file with the token of the run whose folder it is, made by the first of its processes."""

WRITING_SECONDS: Final = 10.0
"""How long another process may take to write its claim once it has made the file."""


DEFAULT_FILES: Final = ("-p", "pytest_touchstone.plugin.default_files")
"""The arguments before all others with which ``touchstone run`` starts pytest."""

NO_FILE: Final = os.devnull
ISOLATION_ARGUMENTS: Final = ("--disable-plugin-autoload", "--noconftest", "--rootdir=.", "-c", NO_FILE)
"""The arguments after them where only shipped benchmarks are run: nothing of the repository around may change them."""

TASKS: Final = "--eval-tasks="
"""The beginning of the arguments after them, one for each ``--tasks``."""

LAST: Final = "last"
"""The name that stands for the newest run."""


RUN_FILES: Final = ("run.json", "collected.json")
"""Files that the folder of a run has, ended or not."""


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, ended or not."""
    return any(file_path(folder, file).is_file() for file in (SUMMARY, *RUN_FILES))


def candidate_paths(target: str | Path, output: Path) -> tuple[Path, ...]:
    """Return where a named file or folder may be: at a path, or in a run of the results folder.

    A name is a run's id first, even if the current folder has such a file; ``./NAME`` is a path only.
    """
    run = output / target
    if target == LAST:
        return (run,)
    is_id = isinstance(target, str) and os.sep not in target and is_run(run)
    return (run, Path(target)) if is_id else (Path(target), run)


def find_run(target: str | Path, output: Path, *files: str) -> Path:
    """Return the folder of a run by its path or id, or of the newest one by ``last``.

    Raises ``HarnessError`` naming the nearest ids, or saying that the run has not ended.
    """
    for folder in candidate_paths(target, output):
        if any(file_path(folder, file).is_file() for file in files):
            return folder
        if (folder / "run.json").is_file():
            raise HarnessError(
                f"{target}: has no {files[0]}: the run goes on, or was killed; the same command goes on from there; "
                f"`touchstone report {target}` shows what is scored"
            )
    paths = [path for file in files for path in files_of_runs(output, file)]
    runs = sorted((path.stat().st_mtime, run_of(path)) for path in paths)
    if str(target) == LAST and runs:
        return runs[-1][1]
    suggestion = did_you_mean(str(target), (folder.name for _, folder in runs)) if str(target) != LAST else ""
    raise HarnessError(f"{target}: no such run in {output}/; {suggestion}`touchstone runs` shows them")


def run_id_of(target: str, output: Path) -> str:
    """Return the id of the run that ``last`` or a folder in ``output`` means; any other text unchanged.

    Raises ``HarnessError`` for ``last`` without a run.
    """
    if target == LAST:
        return find_run(target, output, SUMMARY).name
    folder = Path(target)
    return folder.name if is_run(folder) and folder.resolve().parent == output.resolve() else target


def files_of_runs(output: Path, file: str) -> list[Path]:
    """Return the files of this name of all runs in a results folder."""
    paths = (path for below in ("*", f"*/{DETAILS}") for path in output.glob(f"{below}/{file}"))
    return [path for path in paths if path.is_file()]


def write_error_message(folder: Path, error: OSError | MemoryError) -> str:
    """Return what to say where a file of a run's folder cannot be written."""
    if isinstance(error, MemoryError):
        return "there is not enough memory; free some, and the same command goes on from there"
    path = Path(error.filename) if isinstance(error.filename, str) else folder
    why = error.strerror or type(error).__name__
    return f"cannot write {shown_path(path)}: {why}; free some space or choose another --eval-output"


class RunDirectory:
    """The paths of a run, and the small files through which its processes exchange data."""

    def __init__(self, path: Path, token: str = "") -> None:
        """``token`` is what the processes of the run have in common that writes here; reading needs none."""
        self.path = path
        self.token = token
        self.run_id = path.name
        self._claim = path / DETAILS / CLAIM
        self.quarantine = file_path(path, "quarantine.txt")
        self.manifest = path / "run.json"
        self.collected = file_path(path, "collected.json")

    def used(self) -> bool:
        """Return whether an earlier run wrote here."""
        return self.path.is_dir() and any(self.path.iterdir())

    @property
    def refusal(self) -> str:
        """The line for a run that may not write here, as the folder is another's."""
        return (
            f"{shown_path(self.path)} belongs to another run; choose another --eval-run-id, or, if that run has "
            "ended, remove the folder"
        )

    def is_claimed(self) -> bool:
        """Return whether the folder belongs to the run that has this token."""
        end = time.monotonic() + WRITING_SECONDS
        while True:
            try:
                claim = read_regular(self._claim, len(self.token)).decode()
            except (OSError, ValueError):
                return False
            if claim == self.token or not self.token.startswith(claim) or time.monotonic() > end:
                return claim == self.token
            time.sleep(0.01)  # it is being written

    def make(self, *, logs_at_top: bool = False) -> None:
        """Make the folder, for the run with this token where there is one.

        Raises ``JournalError`` where it is another run's, and when making it is impossible.
        """
        try:
            disk.make_folder(self.path / DETAILS)
            if self.token and not (disk.write_new(self._claim, self.token.encode()) or self.is_claimed()):
                raise JournalError(self.refusal)
            disk.make_folder(self.path / ITEMS)
            for name in LOGS if logs_at_top else ():
                disk.append_text(self.path / name, "")
        except OSError as error:
            self._remove_folders()
            raise JournalError(
                f"cannot make the folder {self.path}: {error.strerror}; choose another --eval-output"
            ) from error

    def discard(self) -> None:
        """Remove the run's folder if it holds nothing but preparations: no manifest, no record of an item."""
        if not self.is_claimed() or self.manifest.exists() or file_paths(self.path, "items-*.jsonl"):
            return
        remove_progress(self.path)
        with suppress(OSError):
            for name in (*PREPARATIONS, *LOGS):
                disk.unlink(file_path(self.path, name))
            disk.unlink(self._claim)  # the last: whoever claims it now has nothing of this run in it
        self._remove_folders()

    def _remove_folders(self) -> None:
        """Remove the folder, where nothing is in it."""
        for folder in (self.path / DETAILS, self.path / ITEMS, self.path):
            with suppress(OSError):
                disk.rmdir(folder)

    def write_collected(
        self,
        items: Sequence[CollectedItem],
        declarations: Mapping[str, Declaration],
        deselected: Sequence[str],
    ) -> None:
        """Note what was collected; every worker writes the same, so the last one wins."""
        data = {
            "schema": SCHEMA,
            "items": [[getattr(item, name) for name in COLUMNS] for item in items],
            "declarations": {name: asdict(declaration) for name, declaration in declarations.items()},
            "deselected": list(deselected),
        }
        write_checked(self.collected, data)

    def read_collected(self) -> tuple[list[CollectedItem], dict[str, Declaration], list[str]]:
        """Return what ``write_collected`` noted; nothing when no process got that far. Raises ``HarnessError``."""
        if not self.collected.is_file():
            return [], {}, []
        try:
            data = read_checked(self.collected)
            # Interned: benchmarks, checkpoints and groups are the same for very many, and records have all of them.
            items = [CollectedItem(*map(_intern, row)) for row in data["items"]]
            declarations = {
                name: from_plain(Declaration, plain) for name, plain in data["declarations"].items()
            }
            return items, declarations, list(map(str, data["deselected"]))
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            RecursionError,
        ) as error:
            raise HarnessError(
                f"{shown_path(self.collected)}: cannot be read ({_error_reason(error)})"
            ) from None

    def write_usage(self, who: str, rows: Sequence[Usage]) -> None:
        """Note what answering has cost a process so far."""
        write_atomic(
            file_path(self.path, f"effort-{who}.json"),
            json.dumps([asdict(row) for row in rows], ensure_ascii=False),
        )

    def read_usage(self) -> list[Usage]:
        """Return what all processes noted. Raises ``HarnessError``."""
        usages: list[Usage] = []
        for path in file_paths(self.path, "effort-*.json"):
            try:
                usages += [from_plain(Usage, row) for row in read_json(path)]
            except (OSError, ValueError, TypeError) as error:
                raise HarnessError(f"{shown_path(path)}: cannot be read ({_error_reason(error)})") from None
        return usages

    def log(self, message: str) -> None:
        """Add a line with its local time to ``run.log``; it is lost on a full disk."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with suppress(OSError):
            disk.append_text(file_path(self.path, "run.log"), f"{stamp} {collapse_lines(redact(message))}\n")

    def unwritten(self, error: OSError | MemoryError) -> str:
        """Return what to say where one of the run's files cannot be written."""
        return write_error_message(self.path, error)

    def check_kept(self) -> None:
        """Raise ``HarnessError`` if the run's folder has been removed or replaced since it was created."""
        if not (self.manifest.exists() and self.is_claimed()):
            raise HarnessError(
                f"{shown_path(self.path)} was removed while the run went on; the same command begins anew"
            )

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write ``run.json``, without keys."""
        write_checked(self.manifest, {"schema": SCHEMA, **redact_value(manifest)}, indent=2)

    def read_manifest(self) -> dict[str, Any]:
        """Return ``run.json``, empty without one. Raises ``HarnessError`` if it is not a manifest."""
        try:
            manifest: dict[str, Any] = read_checked(self.manifest)
            check_manifest(manifest)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            raise HarnessError(
                f"{shown_path(self.manifest)}: cannot be read ({_error_reason(error)})"
            ) from None
        return manifest


# While a run goes on


PROGRESS: Final = "progress-*.json"
"""A process's state, rewritten a few times a second. They are removed when the run has ended."""

STALE: Final = 60.0
"""Seconds after which a run that writes nothing is taken to be stopped."""


@dataclass(slots=True, kw_only=True)
class ProcessProgress:
    """The state of a process.

    ``doing`` is what it loads or asks, or what holds up the work. ``tokens`` is the number read and generated by the
    model, ``ended`` the number of the run's items that have ended here, ``faults`` that of errors, timeouts and lost
    items among them. ``done`` is the completed part of the run's ``work``, in a unit of its own.
    """

    who: str
    doing: str = ""
    tokens: int = 0
    ended: int = 0
    faults: int = 0
    work: float = 0.0
    done: float = 0.0


def write_progress(directory: Path, state: ProcessProgress) -> None:
    """Replace a process's state atomically, without syncing it to the disk."""
    path = directory / DETAILS / PROGRESS.replace("*", state.who)
    with suppress(OSError):
        if directory.is_dir():  # else somebody has removed the run
            write_atomic(path, json.dumps({"schema": SCHEMA, **asdict(state)}), lasting=False)


def read_progress(directory: Path) -> list[ProcessProgress]:
    """Return the states of all processes, by their names; a broken file is taken for none."""
    states = []
    for path in sorted((directory / DETAILS).glob(PROGRESS)):
        with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
            data = read_json(path)
            if data.pop("schema") == SCHEMA:
                states.append(ProcessProgress(**data))
    return states


def is_running(directory: Path, now: float) -> bool:
    """Return whether a process of the run has written something within the last minute."""
    paths = (*file_paths(directory, PROGRESS), *file_paths(directory, "items-*.jsonl"))
    with suppress(OSError):
        return any(now - path.stat().st_mtime <= STALE for path in paths)
    return False


def remove_progress(directory: Path) -> None:
    """Remove the states, when the run has ended."""
    for path in (path for name in (PROGRESS, f".{PROGRESS}.*.tmp") for path in file_paths(directory, name)):
        with suppress(OSError):
            disk.unlink(path)


# The manifest


def _intern(text: Any) -> Any:
    return text if text is None else sys.intern(text)  # raises for what is no text


def _error_reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def command_words(manifest: Mapping[str, Any]) -> list[str]:
    """Return the command of a run as a person types it, but for keys: pytest's, or ``touchstone run``."""
    words = [str(word) for word in redact_value(manifest.get("command", ()))]
    if tuple(words[: len(DEFAULT_FILES)]) != DEFAULT_FILES:
        return ["pytest", *words]
    arguments = words[len(DEFAULT_FILES) :]
    arguments = (
        arguments[len(ISOLATION_ARGUMENTS) :]
        if tuple(arguments[: len(ISOLATION_ARGUMENTS)]) == ISOLATION_ARGUMENTS
        else arguments
    )
    tasks = list(itertools.takewhile(lambda word: word.startswith(TASKS), arguments))
    task_options = (option for word in tasks for option in ("--tasks", word.removeprefix(TASKS)))
    return ["touchstone", "run", *task_options, *arguments[len(tasks) :]]


def environment(command: Sequence[str], folder: Path, root: Path) -> dict[str, Any]:
    """Return the part of a run's manifest about the command, the program versions, the machine and the commit."""
    return {
        "command": list(command),
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
        "machine": {
            "platform": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "python": sys.implementation.name,
        },
        "commit": _commit(folder),
        "rootdir": str(root),
        "folder": str(folder),
    }


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> dict[str, Any] | None:
    """Return the git commit of pytest's start folder, and whether files differ from it.

    None outside git.
    """
    try:
        head = _git(folder, "rev-parse", "HEAD")
        dirty = head and _git(folder, "status", "--porcelain", "-uno")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if head is None else {"id": head, "dirty": bool(dirty)}


def _git(folder: Path, *words: str) -> str | None:
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
