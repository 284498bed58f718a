"""``pytest_touchstone.evaluate``: a run of pytest from Python.

pytest runs in a process of its own, so a notebook stays as it was. No module, warning filter, thread pool or model is
left behind, and memory is free when the call returns. Benchmark files that have changed since the last call are read
again, and a run that dies takes nobody with it. It can be called twice, in threads, in a running event loop, and in a
test.

In return each call loads its models anew: give several checkpoints and benchmarks in one call. Scores of an earlier run
are taken from its journal, without a model.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.errors import ExitCode, HarnessError, OptionError
from pytest_touchstone.core.files import shipped_evals
from pytest_touchstone.core.settings import Setting, settings_table
from pytest_touchstone.core.text import did_you_mean
from pytest_touchstone.plugin.api import child
from pytest_touchstone.plugin.api.finished_run import FinishedRun
from pytest_touchstone.results.layout import place_in
from pytest_touchstone.results.summary import SUMMARY

Paths: TypeAlias = str | Path | Sequence[str | Path]

ENDED: Final = (ExitCode.OK, ExitCode.FAILED, ExitCode.WORSE, ExitCode.NOT_VALID)
"""The exit codes of runs that have results."""

OUTER: Final = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_")
"""Variables of a run of pytest that this one may be called in, which are no concern of its own."""

PATIENCE: Final = 30.0
"""Seconds that a run that is interrupted has to write what it has."""

TOLD: Final = (
    r"\S+: error: (.*)",  # of argparse
    r"ERROR: (.*)",
    r"(nothing selected .*)",
    r"INTERNALERROR> (\w*(?:Error|Exception): .*)",
    r"E +(\w*(?:Error|Exception): .*)",  # of a file that cannot be imported
)
"""Lines of pytest's output that say why there is no result, the surest first."""


class EvaluationError(HarnessError):
    """A run that has no results; ``output`` is the text that pytest wrote."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def evaluate(
    checkpoint: Paths | None = None,
    *,
    tasks: str | Sequence[str] | None = None,
    benchmarks: Paths | None = None,
    workers: int | None = None,
    arguments: Sequence[str] = (),
    progress: bool = False,
    verbose: bool = False,
    **settings: Any,
) -> FinishedRun:
    """Score checkpoints on benchmarks, and return the run.

    ``checkpoint`` and ``tasks`` take one or several of what ``--checkpoint`` and ``--eval-tasks`` take; ``settings``
    are the other options by their names in docs/options.md: ``limit=50``, ``dtype="float32"``, ``no_cache=True``.
    ``benchmarks`` are files or folders of benchmarks (default: the shipped ones), ``workers`` is the number of
    processes, ``arguments`` are further options of pytest.

    Nothing is printed unless asked for: ``progress`` prints a line now and then, ``verbose`` all that pytest writes.

    Raises ``HarnessError`` for a mistake in the arguments, in one line, and ``EvaluationError`` for a run without
    results. Items that fail are in the returned run's ``problems``.
    """
    given = {"checkpoint": checkpoint, "tasks": tasks, **settings}
    options = [text for name, value in given.items() for text in _option(name, value)]
    folder, named = _folder(given)
    command = [
        *(
            sys.executable,
            child.__file__,
            "-p",
            "pytest_touchstone.plugin",
            "-p",
            "no:cacheprovider",
            "--color=no",
        ),
        *options,
        *_workers(workers),
        *arguments,
        *named,
        *_paths(benchmarks),
    ]
    code, output = _run(command, progress=progress, verbose=verbose)
    if code not in (*ENDED, ExitCode.NOTHING) or not (folder / SUMMARY).is_file():
        raise EvaluationError(_why(code, output, folder), output)
    run = FinishedRun(folder, output=output, exit_code=code)
    if not run.results and not run.problems:
        raise EvaluationError(f"nothing was scored: {'; '.join(run.left_out) or 'no item is left'}", output)
    return run


# Arguments


def _option(name: str, value: object) -> list[str]:
    """Return the options that a keyword stands for; raise ``OptionError`` for a wrong name or value."""
    rows = {name: row for name, row in settings_table().items() if row.option}
    if name not in rows:
        near = did_you_mean(name, (*rows, "benchmarks", "workers"))
        raise OptionError(f"evaluate() has no setting {name!r}; {near}docs/options.md has all of them")
    if value is None:
        return []
    row = rows[name]
    if row.action == "switch":
        if not isinstance(value, bool):
            raise OptionError(f"invalid {name} {value!r}: expected True or False")
        return [row.long_flag] if value else []
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if len(values) != 1 and row.action != "append":
        raise OptionError(f"invalid {name} {value!r}: expected one value")
    return [f"{row.long_flag}={_text(row, one)}" for one in values]


def _text(row: Setting, value: object) -> str:
    """Return a value as the command line has it; raise ``OptionError`` where the option would not take it."""
    text = f"{Decimal(repr(value)):f}" if type(value) is float else str(value)
    row.read(text, row.name)
    return text


def _folder(given: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """Return the folder of the run, and the options for it, which a project's own must not replace."""
    rows = settings_table()
    output = str(given.get("output") or rows["output"].default)
    name = f"{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}_{uuid.uuid4().hex[:6]}"
    run_id = str(given.get("run_id") or name)
    return Path(output, run_id), [
        f"{rows['output'].long_flag}={output}",
        f"{rows['run_id'].long_flag}={run_id}",
    ]


def _workers(workers: object) -> list[str]:
    if workers is None:
        return []
    if type(workers) is not int or workers < 0:
        raise OptionError(f"invalid workers {workers!r}: expected a whole number from 0 up")
    return ["-n", str(workers)]


def _paths(benchmarks: Paths | None) -> list[str]:
    if benchmarks is None:
        return [str(shipped_evals())]
    found = [benchmarks] if isinstance(benchmarks, (str, Path)) else list(benchmarks)
    for one in found:
        if not Path(str(one).partition("::")[0]).exists():
            raise OptionError(f"invalid benchmarks {str(one)!r}: no such file or folder")
    if not found:
        raise OptionError("invalid benchmarks []: name a file or folder, or leave it out")
    return [str(one) for one in found]


# The process


def _run(command: Sequence[str], *, progress: bool, verbose: bool) -> tuple[int, str]:
    """Return the exit code of the process and the text that it wrote."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OUTER)}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C in a terminal comes here alone, and is passed on once
    )
    lines = []
    try:
        for line in _lines(process):
            lines.append(line)
            if verbose or (progress and line.startswith("touchstone")):
                sys.stdout.write(line)
                sys.stdout.flush()
        return process.wait(), "".join(lines)
    except BaseException:
        _interrupt(process)
        raise
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Let the run write what it has, and end it."""
    if process.stdin is not None:
        process.stdin.close()
    process.stdin = None
    try:
        process.communicate(timeout=PATIENCE)
    except BaseException:  # too slow, or interrupted again
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _why(code: int, output: str, folder: Path) -> str:
    """Return one line about a run without results."""
    told = [found[1] for form in TOLD if (found := re.search(f"^{form}$", output, re.MULTILINE))]
    if told and code >= 0:
        return told[0].strip()
    what = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    path = place_in(folder, "run.log")
    log = f"; {path} says what happened before" if path.is_file() else ""
    return f"the run has no results ({what}): {last or 'it wrote nothing'}{log}"
