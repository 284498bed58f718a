"""``pytest_touchstone.evaluate``: a run of pytest from Python.

pytest runs in a separate process, so a notebook stays as it was. No module, warning filter, thread pool or model is
left behind, and memory is free when the call returns. Benchmark files that have changed since the last call are read
again, and a run that dies does not end the caller. It can be called twice, in threads, in a running event loop, and in
a test.

In return each call loads its models anew: give several checkpoints and benchmarks in one call. Scores of an earlier run
are taken from its journal, without a model.

A model that is in memory already stays where it is: the process of pytest asks this one (``engines.live``).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from decimal import Decimal
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from pytest_touchstone.core.errors import ExitCode, HarnessError, OptionError
from pytest_touchstone.core.files import shipped_evals, write_checked
from pytest_touchstone.core.settings import settings_table
from pytest_touchstone.core.text import did_you_mean
from pytest_touchstone.engines.live import VARIABLE, serve
from pytest_touchstone.plugin import evaluate_child, new_run_id
from pytest_touchstone.plugin.finished_run import FinishedRun
from pytest_touchstone.results import file_path
from pytest_touchstone.results.aggregate import summary_so_far
from pytest_touchstone.results.summary import SUMMARY, summary_json

if TYPE_CHECKING:
    from pytest_touchstone.engines.transformers.live import LiveModel

Paths: TypeAlias = str | Path | Sequence[str | Path]

ENDED: Final = (ExitCode.OK, ExitCode.FAILED, ExitCode.WORSE, ExitCode.NOT_VALID)
"""The exit codes of runs that have results."""

OUTER: Final = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_", VARIABLE)
"""Variables of a run of pytest that this one may be called in, which are no concern of its own."""

PATIENCE: Final = 30.0
"""Seconds that a run that is interrupted has to write what it has."""

GRACE: Final = 3.0
"""Seconds that requests under way have when the time of a run is up."""

LOADING: Final = (
    "device",
    "device_map",
    "threads",
    "engine",
    "shard",
    "steps",
    "base_model",
    "trust_remote_code",
)
"""Settings that say how checkpoints are found and loaded, which a model in memory is already."""

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
    model: Any = None,
    tokenizer: Any = None,
    name: str | None = None,
    tasks: str | Sequence[str] | None = None,
    benchmarks: Paths | None = None,
    workers: int | None = None,
    arguments: Sequence[str] = (),
    progress: bool = False,
    verbose: bool = False,
    **settings: Any,
) -> FinishedRun:
    """Score checkpoints on benchmarks, and return the run.

    ``model`` is one of Transformers or PEFT in memory, scored in place of a checkpoint as it is now, with its
    ``tokenizer``, on its device and in its number type; it is left as it was. ``name`` is its name in reports (default:
    its class), or the path of the checkpoint that it is saved as: ``runs/a/checkpoint-500`` is step 500 of ``runs/a``.

    ``checkpoint`` and ``tasks`` take one or several of what ``--checkpoint`` and ``--eval-tasks`` take; ``settings``
    are the other options by their names in docs/options.md: ``limit=50``, ``dtype="float32"``, ``no_cache=True``.
    ``benchmarks`` are files or folders of benchmarks (default: the shipped ones), ``workers`` is the number of
    processes, ``arguments`` are further options of pytest.

    Nothing is printed unless asked for: ``progress`` prints a line now and then, ``verbose`` all that pytest writes.

    Raises ``HarnessError`` for a mistake in the arguments, in one line, and ``EvaluationError`` for a run without
    results. Items that fail are in the returned run's ``problems``.
    """
    if model is None and (tokenizer is not None or name is not None):
        raise OptionError(
            "tokenizer and name belong to a model in memory; give model= too, or leave them out"
        )
    if model is not None and checkpoint is not None:
        raise OptionError("checkpoint and model are both given; a run scores one or the other")
    given = {"checkpoint": checkpoint, "tasks": tasks, **settings}
    in_memory: AbstractContextManager[LiveModel | None] = nullcontext()
    if model is not None:
        check_settings(given, workers, live=True)
        from pytest_touchstone.engines.transformers.live import LiveModel

        in_memory = LiveModel(model, tokenizer, name)
    with in_memory as live:
        return evaluate_with(
            given, benchmarks, live, workers=workers, arguments=arguments, progress=progress, verbose=verbose
        )


def evaluate_with(
    given: Mapping[str, Any],
    benchmarks: Paths | None,
    live: LiveModel | None = None,
    *,
    workers: int | None = None,
    arguments: Sequence[str] = (),
    progress: bool = False,
    verbose: bool = False,
    seconds: float | None = None,
) -> FinishedRun:
    """Return the run with these settings; ``live`` is the model in memory that it scores, if any.

    After so many ``seconds`` the run is stopped, and has what was answered until then.
    """
    folder, command = _command(given, benchmarks, live, workers, arguments)
    began = time.monotonic()
    code, output = _run(command, live, progress=progress, verbose=verbose, seconds=seconds)
    if stopped := seconds is not None and time.monotonic() - began >= seconds:
        with suppress(HarnessError, OSError):  # it has no item yet
            write_checked(folder / SUMMARY, summary_json(summary_so_far(folder)))
    if not (stopped or code in (*ENDED, ExitCode.NOTHING)) or not (folder / SUMMARY).is_file():
        raise EvaluationError(_why(code, output, folder), output)
    run = FinishedRun(folder, output=output, exit_code=code)
    if not run.results and not run.summary.failed_to_load:
        raise EvaluationError(f"nothing was scored: {'; '.join(run.left_out) or 'no item is left'}", output)
    return run


def check_evaluation(given: Mapping[str, Any], benchmarks: Paths | None, live: LiveModel | None) -> None:
    """Raise what ``evaluate_with`` would raise for a mistake in what it is given; nothing is scored."""
    folder, command = _command(given, benchmarks, live, None, ("--collect-only", "-q"))
    code, output = _run(command, live, progress=False, verbose=False)
    if code != ExitCode.OK:
        raise EvaluationError(_why(code, output, folder), output)


# Arguments


def check_settings(settings: Mapping[str, Any], workers: object = None, *, live: bool = False) -> None:
    """Raise ``OptionError`` for a wrong setting, or one that a model in memory (``live``) does not take."""
    for name, value in settings.items():
        _option(name, value)
        if live and name in LOADING and value is not None:
            raise OptionError(f"invalid {name} {value!r}: the model is in memory already; leave it out")
    if live and workers:
        raise OptionError(
            f"invalid workers {workers!r}: a model in memory answers in one process; leave it out"
        )


def _command(
    given: Mapping[str, Any],
    benchmarks: Paths | None,
    live: LiveModel | None,
    workers: int | None,
    arguments: Sequence[str],
) -> tuple[Path, list[str]]:
    """Return the folder of the run, and the command; raise ``OptionError``."""
    settings = dict(given)
    if live is not None:
        dtype = given.get("dtype") or "auto"
        if dtype not in ("auto", live.dtype):
            raise OptionError(f"invalid dtype {dtype!r}: the model in memory is {live.dtype}; leave it out")
        # As a run asks that loads it: on a CPU a checkpoint of any type is loaded as float32.
        differs = live.device.type == "cpu" and live.dtype != "float32"
        settings |= {"checkpoint": live.info.source, "dtype": live.dtype if differs else None}
    if workers is not None and (type(workers) is not int or workers < 0):
        raise OptionError(f"invalid workers {workers!r}: expected a whole number from 0 up")
    rows = settings_table()
    output = str(given.get("output") or rows["output"].default)
    run_id = str(given.get("run_id") or new_run_id(time.time()))
    return Path(output, run_id), [
        *(
            sys.executable,
            evaluate_child.__file__,
            "-p",
            "pytest_touchstone.plugin",
            "-p",
            "no:cacheprovider",
        ),
        "--color=no",
        *(text for name, value in settings.items() for text in _option(name, value)),
        *([] if workers is None else ["-n", str(workers)]),
        *arguments,
        # After all others: a project's own options must not replace the folder.
        f"{rows['output'].long_flag}={output}",
        f"{rows['run_id'].long_flag}={run_id}",
        *_paths(benchmarks),
    ]


def _option(name: str, value: object) -> list[str]:
    """Return the options that a keyword stands for; raise ``OptionError`` for a wrong name or value."""
    rows = {name: row for name, row in settings_table().items() if row.option}
    if name not in rows:
        hint = did_you_mean(name, (*rows, "benchmarks", "workers"))
        raise OptionError(f"evaluate() has no setting {name!r}; {hint}docs/options.md has all of them")
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
    texts = [f"{Decimal(repr(item)):f}" if type(item) is float else str(item) for item in values]
    for text in texts:
        row.read(text, row.name)
    return [f"{row.long_flag}={text}" for text in texts]


def _paths(benchmarks: Paths | None) -> list[str]:
    """Return the paths of benchmarks; raise ``OptionError`` for one that is not there."""
    if benchmarks is None:
        return [str(shipped_evals())]
    paths = [str(benchmarks)] if isinstance(benchmarks, (str, Path)) else list(map(str, benchmarks))
    for path in paths:
        if not Path(path.partition("::")[0]).exists():
            raise OptionError(f"invalid benchmarks {path!r}: no such file or folder")
    if not paths:
        raise OptionError("invalid benchmarks []: name a file or folder, or leave it out")
    return paths


# The process


def _run(
    command: Sequence[str],
    live: LiveModel | None,
    *,
    progress: bool,
    verbose: bool,
    seconds: float | None = None,
) -> tuple[int, str]:
    """Run pytest, with a model in memory answering it; return its exit code and its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OUTER)}
    ours, theirs = Pipe()
    with closing(ours):
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**environment, "PYTHONIOENCODING": "utf-8"}
                | ({} if live is None else {VARIABLE: str(theirs.fileno())}),
                pass_fds=() if live is None else (theirs.fileno(),),
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # Ctrl-C in a terminal comes here alone, and is passed on once
            )
        except (OSError, ValueError) as error:  # a NUL, or a text longer than the system allows
            raise OptionError(f"the run cannot be started: {error}; look at its settings") from None
        finally:
            theirs.close()
        lines: list[str] = []

        def read(output: IO[str]) -> None:
            with output:
                for line in output:
                    lines.append(line)
                    if verbose or (progress and line.startswith("touchstone")):
                        sys.stdout.write(line)
                        sys.stdout.flush()

        reader = threading.Thread(target=read, args=(process.stdout,), name="touchstone-output", daemon=True)
        reader.start()
        try:
            if live is not None:
                # The model answers in the caller's thread, where its device and its context belong.
                serve(live, ours)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            if process.poll() is None:
                _interrupt(process, grace=GRACE)
            code = process.returncode
            reader.join()
            return code, "".join(lines)
        except BaseException:
            ours.close()
            _interrupt(process)
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()


def _interrupt(process: subprocess.Popen[str], *, grace: float | None = None) -> None:
    """Let the run write what it has, and end it; what is under way has ``grace``, or as long as it takes."""
    if process.stdin is not None:
        process.stdin.close()
    if grace is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=PATIENCE)
    except BaseException:  # too slow, or interrupted again
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _why(code: int, output: str, folder: Path) -> str:
    """Return one line about a run without results."""
    messages = [match[1] for form in TOLD if (match := re.search(f"^{form}$", output, re.MULTILINE))]
    if messages and code >= 0:
        return messages[0].strip()
    what = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    path = file_path(folder, "run.log")
    log = f"; {path} says what happened before" if path.is_file() else ""
    return f"the run has no results ({what}): {last or 'it wrote nothing'}{log}"
