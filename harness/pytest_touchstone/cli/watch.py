"""``touchstone watch``: scores the checkpoints of a training as they appear, each by a ``touchstone run`` of its own.

    touchstone watch 'runs/a/checkpoint-*' --tasks arc_easy --eval-limit 200 --gate --until idle=2h

All that is known of what was done lies in the runs' folders, ``OUTPUT/watch-SERIES-KEY-CHECKPOINT-STAMP_RANDOM``. The
key is that of the pattern and the settings that results depend on, the stamp that of the checkpoint's files. So
whatever is killed, the same command goes on: a run that has summed up is not begun again, and one that has not is
continued by a new one, which takes its scores. ``details/watch.json`` is written once the checkpoint's line is out and
all who are to know of a worse one were told.

A lock (``OUTPUT/.NAME.lock``), which its runs inherit, is waited for: a run may outlive its watch. Where the file
system has no locks, two watches may score a checkpoint twice, in runs of their own, and each takes what the other has
found.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import find
from pytest_touchstone.checkpoints.watcher import CheckpointWatcher, CompletedCheckpoint
from pytest_touchstone.cli.command import Output, Parser, say, terminal
from pytest_touchstone.cli.run import join_option_values
from pytest_touchstone.cli.study import read_study
from pytest_touchstone.core.errors import CheckpointError, ExitCode, HarnessError
from pytest_touchstone.core.files import (
    SCHEMA,
    file_name,
    shown_path,
    unwritable_reason,
    write_atomic,
    write_json,
)
from pytest_touchstone.core.settings import (
    SET,
    load_environment_settings,
    load_project_settings,
    parse_set_options,
    settings_table,
)
from pytest_touchstone.core.text import count, escape_invisible, one_line, redact_home
from pytest_touchstone.document import Section, render_text
from pytest_touchstone.document.formatting import wrapped
from pytest_touchstone.reports.alerts import (
    CheckpointAlert,
    alerts_section,
    checkpoint_alert,
    kill_group,
    send_alert,
)
from pytest_touchstone.results import file_path
from pytest_touchstone.results.aggregate import has_ended
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary, whole_results

USAGE: Final = "touchstone watch PATTERN [any option of touchstone run]"

EPILOG: Final = """All other options go to each `touchstone run`, such as --tasks arc_easy, --eval-limit 200,
--eval-set memory=4GiB, --eval-steps ::500 and --gate, with which the exit code is 8 if a checkpoint was worse than the
best one before it, else 9 if one could not be judged. Ctrl-C ends; the same command goes on from there."""

RELOAD: Final = 10
"""Seconds after which the page loads itself again."""

WIDTH: Final = 80
"""The columns of a line that goes to a file."""

ENDING: Final = 20.0
"""Seconds that a run has to end by itself; Slurm kills after 30."""

TAIL: Final = 65_536
"""The bytes at the end of a run's output among which its error is looked for."""

TOLD: Final = "watch.json"

POLL: Final = 10.0
"""Seconds between two looks."""

OURS: Final = ("checkpoint", "run_id", "shard", "dry_run")
"""The settings that a watch gives its runs itself, or that score nothing."""

JUDGED: Final = frozenset(("gate", "gate_mode", "gate_config", "baseline"))
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.usage, parser.epilog = USAGE, EPILOG
    add = parser.add_argument
    add(
        "pattern", metavar="PATTERN", help="a pattern of checkpoints ('runs/a/checkpoint-*'), or their folder"
    )
    text = "the benchmarks, as of `touchstone run`"
    add("--tasks", action="append", default=[], metavar="NAME,...", help=text)
    text = "end once step N is scored, or after so long without a new checkpoint; both: what comes first"
    add("--until", action="append", default=[], type=parse_until, metavar="step=N|idle=2h", help=text)
    text = "the live page, which loads itself again (default: watch-NAME.html in the results folder)"
    add("--page", type=Path, metavar="FILE", help=text)
    text = "--gate, and for each worse checkpoint a shell command (with WATCH_CHECKPOINT, WATCH_BENCHMARK, "
    text += "WATCH_METRIC, WATCH_VERDICT, WATCH_RUN); may be given again"
    add("--on-worse", action="append", default=[], metavar="CMD", help=text)
    text = "--gate, and write this file when a checkpoint is worse, for the trainer to see"
    add("--stop-file", type=Path, metavar="FILE", help=text)
    text = "seconds between two looks, and without a change until a checkpoint is whole (default: 10)"
    add("--poll", type=float, default=POLL, metavar="SECONDS", help=text)


def run(options: argparse.Namespace) -> Output:
    """Watch until the end that was asked for, or Ctrl-C. Raises ``HarnessError`` for a mistake, before anything
    runs."""
    watch = Watch(plan_of(options))
    with ExitStack() as stack:
        # SIGTERM, by which clusters stop a job, and the end of the terminal are Ctrl-C, unless they are ignored.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        try:
            watch.lock = stack.enter_context(_hold_lock(watch.plan))
            watch.begin()
            code = watch.go_on()
            return Output(None, watch.last_line("ended"), code)
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):
                watch.show("The watch was stopped.", reload=None)
            code = ExitCode.WORSE if watch.code() == ExitCode.WORSE else ExitCode.INTERRUPTED
            return Output(None, watch.last_line("stopped", "; the same command goes on from here"), code)


@contextmanager
def _hold_lock(plan: WatchPlan) -> Iterator[int]:
    """Hold the lock of a watch and yield its descriptor. Another watch or run must release it first."""
    plan.output.mkdir(parents=True, exist_ok=True)
    with (plan.output / f".{plan.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another watch of the same, or a run that it began, goes on: waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            tell(f"no lock ({error.strerror}): see that no other watch has the same results folder")
        yield file.fileno()


def tell(text: str) -> None:
    """Print a text at once, in lines that fit."""
    for line in wrapped(escape_invisible(text), _width()):
        say(line)
    sys.stdout.flush()


def _width() -> int:
    return terminal()["width"] if sys.stdout.isatty() else WIDTH


# What was asked for


def parse_until(text: str) -> tuple[str, float]:
    """Parse the end of a watch: "step" with a number, or "idle" with seconds. Raises ``ArgumentTypeError``."""
    name, _, value = text.partition("=")
    if name == "step" and value.isdecimal():
        return name, int(value)
    if name == "idle" and (match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)):
        return name, float(match[1]) * UNITS[match[2] or "s"]
    raise argparse.ArgumentTypeError(
        f"invalid {text!r}: expected step=N or idle=TIME, such as 90s, 30m or 2h"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """The plan of a watch, derived from its ``options``.

    ``name`` is ``watch-SERIES-KEY``, ``words`` are the arguments of each run, ``settings`` the resolved settings of its
    runs.
    """

    options: argparse.Namespace
    settings: Mapping[str, Any]
    words: tuple[str, ...]
    name: str
    output: Path
    page: Path

    def command(self, *words: str) -> list[str]:
        """Return the command of a run."""
        return [sys.executable, "-P", "-m", "pytest_touchstone.cli", "run", *words]

    def inspect(self, path: Path) -> CheckpointInfo:
        """Describe a checkpoint from its headers. Raises ``CheckpointError``."""
        infos = find(
            str(path),
            seq_len=self.settings.get("seq_len"),
            base_model=self.settings.get("base_model"),
            trust_remote_code=bool(self.settings.get("trust_remote_code")),
        ).infos
        if [info.path for info in infos] != [path]:
            raise CheckpointError(f"{path}: is gone, or no checkpoint itself")
        return infos[0]


def plan_of(options: argparse.Namespace) -> WatchPlan:
    """Return what the options ask for. Raises ``HarnessError`` for a mistake in them."""
    if re.match(r"\w[\w+.-]*:", options.pattern):
        raise HarnessError(f"{options.pattern}: expected checkpoints on disk, such as 'runs/a/checkpoint-*'")
    if urls := [command for command in options.on_worse if re.match(r"https?://", command)]:
        raise HarnessError(
            f"--on-worse: give a command that sends it, such as 'curl -d \"$WATCH_RUN\" {urls[0]}'"
        )
    if options.poll <= 0:
        raise HarnessError(f"--poll {options.poll:g}: expected seconds above 0")
    given, others = _settings(options.rest)
    table = settings_table()
    for name in OURS:
        if name in given:
            raise HarnessError(f"{table[name].flag}: a watch has its own, or has no use for it; leave it out")
    settings = (
        load_project_settings(Path("pyproject.toml"))[0] | load_environment_settings(os.environ)[0] | given
    )
    output = Path(settings.get("output", "results"))
    words = [f"--eval-tasks={tasks}" for tasks in options.tasks]
    words += [*join_option_values(options.rest), f"--eval-output={output}"]
    if options.on_worse or options.stop_file:
        words.append("--gate")
    elif not JUDGED & settings.keys():
        words.append("--baseline=best")
    pattern = Path(os.path.abspath(options.pattern))  # noqa: PTH100 -- links stay
    # The name of the folder in which the checkpoints lie, as far as the pattern says it.
    fixed = list(itertools.takewhile(lambda component: not glob.has_magic(component), pattern.parts))
    series = file_name(fixed[-1])[:40] if len(fixed) > 1 else "all"
    depends = {name: value for name, value in settings.items() if table[name].affects != "speed"}
    facts = json.dumps([str(pattern), options.tasks, sorted(depends.items()), others], default=str)
    name = f"watch-{series}-{hashlib.sha256(facts.encode()).hexdigest()[:6]}"
    page = options.page or output / f"{name}.html"
    for flag, path in (
        ("--eval-output", output / name),
        ("--page", page),
        ("--stop-file", options.stop_file),
    ):
        if path is not None and (why := "is a folder" if path.is_dir() else unwritable_reason(path.parent)):
            raise HarnessError(f"{flag} {shown_path(path)}: {why}; choose another")
    return WatchPlan(
        options=options, settings=settings, words=tuple(words), name=name, output=output, page=page
    )


def _settings(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings among the arguments of a run, and the other arguments. Raises ``OptionError``."""
    parser = Parser(prog="touchstone watch", add_help=False, allow_abbrev=False)
    parser.takes_rest = True
    rows = {name: row for name, row in settings_table().items() if row.option and not row.key}
    parser.add_argument(SET, dest="keys", action="append", default=[])
    for name, row in rows.items():
        action = {"value": "store", "append": "append", "switch": "store_true"}[row.action]
        flags = dict.fromkeys((row.flag, row.long_flag))
        parser.add_argument(*flags, dest=name, action=action, default=argparse.SUPPRESS)
    values = vars(parser.parse_args(words))
    others, settings = values.pop("rest"), parse_set_options(values.pop("keys"))
    for name, value in values.items():
        if isinstance(value, list):
            settings[name] = tuple(rows[name].read(text) for text in value)
        else:
            settings[name] = rows[name].read(value) if isinstance(value, str) else value
    return settings, others


# The watch itself


@dataclass
class Watch:
    """A watch at work, which holds ``lock``.

    ``findings`` are those of its runs, by folder, ``checkpoints`` their checkpoints, by run; ``settled`` are the runs
    that are not begun again, ``failed`` has the failures of the others.
    """

    plan: WatchPlan
    lock: int = -1
    findings: dict[Path, CheckpointAlert] = field(default_factory=dict)
    checkpoints: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    failed: dict[str, int] = field(default_factory=dict)
    given_up: int = 0
    farthest: float = -1.0
    _refused: dict[Path, str] = field(default_factory=dict)
    _study: tuple[int, Sequence[Section]] = (0, ())
    _unwritten: str = ""

    def __post_init__(self) -> None:
        self.active, options = time.monotonic(), self.plan.options
        self.arrivals = CheckpointWatcher(options.pattern, options.poll, self.plan.inspect, self.active)

    def begin(self) -> None:
        """Take up what earlier watches have done, and see whether the options are right. Raises ``HarnessError``."""
        self._take_all()
        self.arrivals.look(time.monotonic())
        if not self.findings:
            # Options that only some checkpoints take are no mistake before there is one.
            table = settings_table()
            rows = [row for row in table.values() if row.affects == "checkpoints" or row.name == "seq_len"]
            flags = tuple(f"{flag}=" for row in rows for flag in (row.flag, row.long_flag))
            words = (word for word in self.plan.words if not f"{word}=".startswith(flags))
            trial = ("--checkpoint=fake:causal", "--checkpoint=fake:masked", "--eval-dry-run")
            with tempfile.TemporaryFile() as log:
                command = self.plan.command(*words, *trial)
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
                if done.returncode in (ExitCode.MISTAKE, ExitCode.NOTHING):
                    raise HarnessError(_error(log))
        before = f", {count(len(self.findings), 'checkpoint')} scored before" if self.findings else ""
        tell(f"watching {self.plan.options.pattern}{before}; Ctrl-C ends, and nothing is lost")
        tell(f"page     {shown_path(self.plan.page)}")

    def go_on(self) -> int:
        """Score checkpoints as they arrive until the watch ends, and return the exit code."""
        while True:
            waiting = self._waiting()
            if waiting:
                self._score(waiting[0], len(waiting) - 1)
                self.active = time.monotonic()
                continue
            quiet = time.monotonic() - max(self.active, self.arrivals.last_change)
            self.show(f"Waiting for a checkpoint; {self.arrivals.there()} are there.")
            at_rest = self.arrivals.at_rest()
            for name, value in self.plan.options.until:
                if quiet >= value if name == "idle" else at_rest and self.farthest >= value:
                    self.show("The watch has ended.", reload=None)
                    return self.code()
            time.sleep(self.plan.options.poll)

    def code(self) -> int:
        """Return the exit code for the alerts so far."""
        if any(finding.worse and finding.gated for finding in self.findings.values()):
            return ExitCode.WORSE
        if self.given_up or any(finding.invalid for finding in self.findings.values()):
            return ExitCode.NOT_VALID
        return ExitCode.OK

    def last_line(self, how: str, more: str = "") -> str:
        """Return a summary of the watch in a line."""
        worse = sum(finding.worse for finding in self.findings.values())
        parts = [f"{count(len(self.findings), 'checkpoint')} scored"]
        parts += [f"{worse} worse"] if worse else []
        parts += [f"{self.given_up} given up"] if self.given_up else []
        return f"{how}: {', '.join(parts)}{more}"

    def _waiting(self) -> list[CompletedCheckpoint]:
        """Return the complete checkpoints that are not scored yet, the newest first."""
        self._take_all()
        arrivals = self.arrivals.look(time.monotonic())
        if (steps := self.plan.settings.get("steps")) is not None:
            arrivals = [
                arrival for arrival in arrivals if arrival.step is not None and steps.has(arrival.step)
            ]
        for path, why in self.arrivals.refused().items():
            if self._refused.get(path) != why:
                self._refused[path] = why
                tell(f"{path.name}  is not whole, and waits: {redact_home(why)}")
        return [arrival for arrival in arrivals if self._run(arrival) not in self.settled]

    def _run(self, arrival: CompletedCheckpoint) -> str:
        return f"{self.plan.name}-{file_name(arrival.path.name)[:58]}-{arrival.stamp}"

    def _take_all(self) -> None:
        """Take the alerts of runs by other or earlier watches, in order of completion."""
        written = {}
        for path in self.plan.output.glob(f"{glob.escape(self.plan.name)}-*/{SUMMARY}"):
            with suppress(OSError):  # another watch may have dropped it just now
                written[path.parent] = path.stat().st_mtime
        for folder in sorted(written.keys() - self.findings.keys(), key=written.__getitem__):
            self._take(folder)

    def _take(self, folder: Path) -> None:
        """Take the alert of a run, and announce each alert only once."""
        summary = _finished_summary(folder)
        if summary is None:
            return
        self.checkpoints[folder.name] = summary.checkpoints[0]
        finding = checkpoint_alert(summary, self.checkpoints)
        marker = file_path(folder, TOLD)
        if not marker.exists():
            options = self.plan.options
            for line in send_alert(finding, options.on_worse, options.stop_file) if finding.worse else ():
                tell(line)
            say(render_text([alerts_section([finding])], width=_width(), color=False))
            sys.stdout.flush()
            write_json(marker, {"schema": SCHEMA, "kind": "watch", "worse": finding.worse})
        self.findings[folder] = finding
        self._settle(re.sub(r"(?<=-[0-9a-f]{8})_\w+$", "", folder.name), summary.checkpoints[0].get("step"))

    def _settle(self, run: str, step: float | None) -> None:
        """Note that a run is not begun again."""
        self.settled.add(run)
        self.farthest = self.farthest if step is None else max(self.farthest, step)

    def _score(self, arrival: CompletedCheckpoint, others: int) -> None:
        """Score a checkpoint by a run of its own."""
        folder = self.plan.output / f"{self._run(arrival)}_{os.urandom(3).hex()}"
        began = time.strftime("%H:%M")
        more = f"; {count(others, 'other waits', 'others wait')}" if others else ""
        words = (
            f"--checkpoint={arrival.path}",
            f"--eval-run-id={folder.name}",
            "-q",
            "-p",
            "no:cacheprovider",
        )
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                self.plan.command(*self.plan.words, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self.lock,),
            )
            try:
                while not arrival.changed() and not _has_ended(process, min(self.plan.options.poll, RELOAD)):
                    self.show(f"Scoring {arrival.name} since {began}{more}.")
            except BaseException:
                try:  # it keeps what it has, and is killed after a while, or at another Ctrl-C
                    process.terminate()
                    _has_ended(process, ENDING)
                finally:
                    kill_group(process)
                if not arrival.changed():
                    self._take_all()
                raise
            if arrival.changed():
                kill_group(process)
                _drop(folder)
                tell(f"{arrival.name}  was written to while it was scored: its run is dropped")
                return
            self._take_all()
            if folder not in self.findings:
                self._tell_failure(arrival, process.returncode, _error(log))

    def _tell_failure(self, arrival: CompletedCheckpoint, code: int, why: str) -> None:
        """Tell of a run without results. It is begun once more, unless a second one would end alike."""
        run = self._run(arrival)
        if not arrival.path.exists():
            tell(f"{arrival.name}  was removed or renamed before it was scored")
            self._settle(run, arrival.step)
            return
        self.failed[run] = self.failed.get(run, 0) + 1
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}: {why}"
        again = self.failed[run] == 1 and code not in (ExitCode.MISTAKE, ExitCode.NOTHING)
        tell(f"{arrival.name}  the run failed ({how}); {'tried again' if again else 'given up'}")
        if not again:
            self._settle(run, arrival.step)
            self.given_up += 1

    def show(self, state: str, reload: int | None = RELOAD) -> None:
        """Write the page with all results so far and the current state."""
        from pytest_touchstone.reports.page.summary import study_sections
        from pytest_touchstone.reports.pages import live_page
        from pytest_touchstone.study.sections import sections_of

        messages = [f"{state} As of {time.strftime('%Y-%m-%d %H:%M:%S')}."]
        try:
            if self._study[0] != len(self.findings):
                study = read_study([str(folder) for folder in self.findings], self.plan.output)
                self._study = len(self.findings), study_sections(study, sections_of(study))
            _, sections = self._study
        except HarnessError as error:
            sections = ()
            messages.append(f"The results cannot be shown: {error}")
        notes = [Section(key="state", parts=tuple(messages), urgent=True)]
        if worse := [finding for finding in self.findings.values() if finding.worse]:
            notes.append(alerts_section(worse))
        shown = [*sections[:2], *notes, *sections[2:]]  # below the best checkpoint and the overview
        title = f"Checkpoints of {self.plan.options.pattern}"
        try:
            write_atomic(self.plan.page, live_page(shown, title=title, reload=reload))
        except (HarnessError, OSError) as error:
            if str(error) != self._unwritten:
                tell(f"no page: {error}")
            self._unwritten = str(error)


def _finished_summary(folder: Path) -> Summary | None:
    """Return the summary of a finished run with scores, else None."""
    with suppress(HarnessError):
        if has_ended(folder) and not (summary := load_summary(folder)).stopped:
            return summary if any(result.scored for result in whole_results(summary)) else None
    return None


def _drop(folder: Path) -> None:
    """Remove a run with unknown progress, and its saved results."""
    store = ResultStore(folder.parent)
    for saved in store.find():
        if saved.run_id == folder.name:
            store.remove(saved)
    shutil.rmtree(folder, ignore_errors=True)


def _error(log: IO[bytes]) -> str:
    """Return the last error line in a run's output."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
    lines = [one_line(line) for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"ERROR: |touchstone: |\w+Error\b", line)]
    return re.sub("^(ERROR|touchstone): ", "", (errors or lines or ["it said nothing"])[-1])[:500]


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None
