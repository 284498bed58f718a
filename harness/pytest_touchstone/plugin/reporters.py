"""The reporters of a finished run: implementations of ``core.hooks``, like those of any conftest.

They write the files of the run's folder and the table on the terminal. Markdown, JUnit's XML, pytest-json-report's
file and GitHub Actions are served where they are asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pytest_touchstone.core.errors import ExitCode, HarnessError, JournalError
from pytest_touchstone.core.files import shown_path, unwritable_reason, write_atomic
from pytest_touchstone.core.hooks import add_specifications
from pytest_touchstone.core.keys import redact
from pytest_touchstone.document.formatting import busy_text, command_lines, wrapped
from pytest_touchstone.plugin.plain_stream import install_plain_stream, stream_of
from pytest_touchstone.reports import ci, files, terminal
from pytest_touchstone.reports.next_steps import invalid_paragraphs, resume_text
from pytest_touchstone.reports.page.security import KeyFoundError
from pytest_touchstone.reports.progress import ProgressLine, letters_text, short_name
from pytest_touchstone.reports.trackers.payload import Tracker
from pytest_touchstone.reports.trackers.sending import trackers
from pytest_touchstone.results.journal import iter_records, latest_records
from pytest_touchstone.results.run_directory import remove_progress, write_error_message
from pytest_touchstone.results.summary import Summary, reportable_part, summary_json

if TYPE_CHECKING:
    from pytest_touchstone.core.eval_config import EvalConfig
    from pytest_touchstone.results.run_directory import RunDirectory


class ReporterWarning(NamedTuple):
    """A line about something that a reporter could not do, and the exit code of an otherwise good run.

    The code is 0 if the report was not asked for.
    """

    line: str
    exit_code: int = 0


class FileReporter:
    """The files of the run's folder."""

    def __init__(self, unscored: Set[str]) -> None:
        """``unscored`` has the items without a score, when the run has ended."""
        self._unscored = unscored
        self._summary: Summary | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_touchstone_checkpoint_finished(self, summary: Summary) -> None:
        with suppress(HarnessError, OSError):  # the end of the run writes them again, or says why it cannot
            files.write_checkpoints(summary)

    @pytest.hookimpl(tryfirst=True)
    def pytest_touchstone_run_finished(self, summary: Summary) -> str | None:
        self._summary = summary
        remove_progress(Path(summary.directory))
        refused = None
        try:
            files.write_results(summary)
        except KeyFoundError as error:
            refused = str(error)
        files.write_code_files(Path(summary.directory), self._unscored)
        return refused

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        if self._summary is not None:
            json_report["eval"] = summary_json(self._summary)
            json_report["exitcode"] = int(json_report.get("exitcode", 0))


@dataclass(frozen=True, slots=True, eq=False)
class MarkdownFile:
    """The file of ``--eval-set markdown``."""

    target: Path

    def pytest_touchstone_run_finished(self, summary: Summary) -> None:
        try:
            write_atomic(self.target, ci.markdown_page(reportable_part(summary)))
        except OSError as error:
            raise HarnessError(f"cannot write --eval-set markdown {self.target}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, eq=False)
class BesideCheckpoints:
    """The files of ``--eval-set beside``."""

    note: Callable[[str, int], None]

    def pytest_touchstone_checkpoint_finished(self, summary: Summary) -> None:
        files.write_beside(summary)  # what cannot be written is said at the end of the run

    def pytest_touchstone_run_finished(self, summary: Summary) -> None:
        written = files.write_beside(summary)
        for line in written.lines:
            self.note(line, 0)
        if written.error:
            self.note(written.error, 1)


@dataclass(frozen=True, slots=True, eq=False)
class JUnitReporter:
    """Properties and the gate's test cases in the file of ``--junitxml``, which pytest writes afterwards."""

    config: pytest.Config

    def pytest_touchstone_run_finished(self, summary: Summary) -> None:
        from _pytest.junitxml import xml_key

        if (xml := self.config.stash.get(xml_key, None)) is not None:
            summary = reportable_part(summary)
            for name, value in ci.properties(summary):
                xml.add_global_property(name, value)
            for index, case in enumerate(ci.gate_cases(summary)):
                reporter = xml.node_reporter(f"touchstone-gate-{index}")  # as pytest's for an internal error
                classname = ".".join(filter(None, (xml.prefix, case.classname)))
                reporter.attrs.update(classname=classname, name=case.name)
                if case.failed:
                    reporter._add_simple("failure", case.text, case.text)
                else:
                    reporter._add_simple("system-out", case.text)
                    reporter.add_stats("passed")


class GitHub:
    """The summary of a job on GitHub."""

    def pytest_touchstone_run_finished(self, summary: Summary) -> str | None:
        return ci.append_summary(os.environ, ci.markdown_page(reportable_part(summary)))


def tell_failure(folder: Path, target: str | None, code: int, message: str) -> None:
    """Report a run that ends without results.

    It goes to the file of ``markdown``, and on GitHub to the job's summary and an annotation. What cannot be written is
    skipped.
    """
    text = ci.failed_page(code, message)
    if target:
        with suppress(OSError):
            write_atomic(folder / target, text)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        ci.append_summary(os.environ, text)
        print(f"\n{ci.failure_command(code, message)}", flush=True)


def _ends_with_gate(summary: Summary | None) -> bool:
    """Return whether the gate's decision comes below pytest's last line; it is then not in the report too."""
    gate = (summary.gate if summary is not None else None) or {}
    return bool(gate.get("mode")) and gate["exit_code"] not in (ExitCode.OK, ExitCode.MISTAKE)


class PausedProgressLine:
    """Hides the progress line while pytest writes, and continues pytest's line below it.

    It is registered only where there is such a line, since these hooks run several times per item.
    """

    def __init__(self, progress: ProgressLine, reporter: pytest.TerminalReporter, *, alone: bool) -> None:
        """``alone`` says whether the items are answered in this process."""
        self._progress, self._reporter, self._alone = progress, reporter, alone

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> Generator[None, object, object]:
        with self._progress.paused():
            self._go_on(nodeid)
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        with self._progress.paused():
            self._go_on(report.nodeid)
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True, optionalhook=True)  # pytest_testnodedown is xdist's
    def pytest_runtest_logfinish(self) -> Generator[None, object, object]:
        with self._progress.paused():
            return (yield)

    pytest_testnodedown = pytest_runtest_logfinish

    def _go_on(self, nodeid: str) -> None:
        """Begin a new line of pytest's, as it does at a new file."""
        if not self._progress.broke_line:
            return
        self._progress.broke_line, reporter = False, self._reporter
        if self._alone:
            reporter.currentfspath = None
        if reporter.verbosity <= 0 and reporter.showfspath:
            reporter.write_fspath_result(nodeid, "")
        elif reporter.verbosity <= 0:
            reporter.line("")


class CheckpointNames:
    """Begins a line of pytest's dots for each file and checkpoint, with the checkpoint's name."""

    def __init__(self, reporter: pytest.TerminalReporter, names: Mapping[str, str]) -> None:
        """``names`` are those of the checkpoints, by node ids."""
        self._reporter, self._names = reporter, names
        self._last: str | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logstart(self, nodeid: str) -> Generator[None, object, object]:
        reporter, name = self._reporter, self._names.get(nodeid)
        if name != self._last and reporter.currentfspath is not None:
            reporter.currentfspath = Path()  # another one than any: a line begins
        before, self._last = reporter.currentfspath, name
        outcome = yield
        if name is not None and reporter.currentfspath != before:
            reporter.write(f"{short_name(name)} ", flush=True)
        return outcome


def check_paths(output: Path, target: Path | None) -> None:
    """Raise ``pytest.UsageError`` where the run's folder or the Markdown cannot be written; neither is made here."""
    if (why := unwritable_reason(output)) is not None:
        raise pytest.UsageError(f"--eval-output {shown_path(output)}: {why}; choose another folder")
    if target is not None and target.is_dir():
        raise pytest.UsageError(f"--eval-set markdown {shown_path(target)}: this is a folder; name a file")
    if target is not None and (why := unwritable_reason(target.parent)) is not None:
        raise pytest.UsageError(f"--eval-set markdown {shown_path(target)}: {why}; choose another file")


def check_output_paths(file: EvalConfig, base: Path) -> None:
    """Raise ``pytest.UsageError`` where an ``output_path`` of a file of benchmarks cannot be written."""
    for choice in file.choices:
        if (path := choice.asking.output_path) is None:
            continue
        folder = (base / path).parent if path.endswith(".json") else base / path
        if (why := unwritable_reason(folder)) is not None:
            raise pytest.UsageError(f"{shown_path(file.path)}: {choice.where}, output_path {path}: {why}")


class HookCaller:
    """Registers our reporters, and calls the hooks of a run.

    Each implementation is called separately, so that one that raises costs nothing but itself.
    """

    def __init__(
        self,
        config: pytest.Config,
        target: Path | None,
        unscored: Set[str],
        trackers: Iterable[str] = (),
        *,
        beside: bool = False,
    ) -> None:
        """``target`` is the file of ``--eval-set markdown``; ``unscored`` has the items without a score when the run
        has ended; ``trackers`` are the names of those that are told; ``beside`` is whether results are written beside
        the checkpoints too.

        Raises ``pytest.UsageError`` where a tracker cannot be told.
        """
        self._config = config
        self._manager = config.pluginmanager
        self._failed: set[tuple[str, int]] = set()
        self._on_github = os.environ.get("GITHUB_ACTIONS") == "true"
        install_plain_stream(config)
        self.notices: list[ReporterWarning] = []
        self._total = 0
        add_specifications(self._manager)
        ours: list[object] = [FileReporter(unscored), JUnitReporter(config)]
        ours += [MarkdownFile(target)] if target is not None else []
        ours += [BesideCheckpoints(self.note)] if beside else []
        ours += [GitHub()] if self._on_github else []
        ours += map(make_tracker_hooks, trackers)
        for reporter in ours:
            self._manager.register(reporter)

    def note(self, line: str, exit_code: int = 0) -> None:
        """Note a line for the end of the report."""
        self.notices.append(ReporterWarning(line, exit_code))

    def wanted(self, name: str) -> bool:
        """Return whether anybody implements a hook."""
        return bool(getattr(self._manager.hook, name).get_hookimpls())

    def call(self, name: str, **arguments: Any) -> list[Any]:
        """Return what the implementations return, ours first; one that raises is noted and not called again."""
        returned = []
        implementations = list(reversed(getattr(self._manager.hook, name).get_hookimpls()))
        for implementation in implementations:
            if (name, id(implementation.plugin)) in self._failed:
                continue
            others = [other.plugin for other in implementations if other.plugin is not implementation.plugin]
            try:
                returned += self._manager.subset_hook_caller(name, others)(**arguments)
            except Exception as error:  # whatever somebody's hook does, the run's results must be written
                self._failed.add((name, id(implementation.plugin)))
                who = (
                    Path(implementation.plugin_name).name
                    if implementation.plugin_name.endswith(".py")
                    else implementation.plugin_name
                )
                line = f"{name} of {who} failed: {type(error).__name__}: {error}"
                if isinstance(implementation.plugin, MarkdownFile):
                    line = str(error)
                elif isinstance(implementation.plugin, FileReporter):
                    why = write_error_message(Path(), error) if isinstance(error, MemoryError) else str(error)
                    line = f"the results cannot be written: {why}"
                self.note(line, ExitCode.NOT_VALID if isinstance(implementation.plugin, FileReporter) else 1)
        return returned

    def tell_beginning(self, manifest: Mapping[str, Any], total: int) -> None:
        """Write that the machine is busy, and what a demonstration is, unless pytest is to be quiet."""
        self._total = total
        reporter = self._manager.get_plugin("terminalreporter")
        if reporter is None or self._config.option.verbose < 0:
            return
        writer = self._config.get_terminal_writer()
        width = writer.fullwidth
        if writer.width_of_current_line:  # xdist's, about its workers
            writer.line()
        if busy := busy_text(os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1):
            reporter.write_line(busy)
        if demonstration := manifest.get("demonstration"):
            for line in wrapped(demonstration["what"], width):
                reporter.write_line(line)
            for label, name in (("all rows", "all"), ("your own", "own")):
                first, *others = command_lines(demonstration[name], width - 12)
                reporter.write_line(f"  {label}  {first}")
                for line in others:
                    reporter.write_line(f"{'':12}{line}")

    def start_progress(
        self, directory: Path, total: int, processes: int, names: Mapping[str, str]
    ) -> ProgressLine | None:
        """Start the progress line of a run; None if it cannot be shown.

        ``total`` is the number of items, ``processes`` that of the processes that answer them. ``names`` are the
        checkpoints of items, if there are several.
        """
        reporter = self._manager.get_plugin("terminalreporter")
        if reporter is not None and names and self._config.option.verbose == 0 and processes == 1:
            self._manager.register(CheckpointNames(reporter, names))
        if reporter is None or self._config.option.verbose < 0 or not total:
            return None
        # With -s or live logs others also write on the terminal at any time: then plain lines, as for a file.
        alone = self._config.getoption("capture", "no") != "no" and not self._config.getoption(
            "log_cli_level", None
        )
        writer = self._config.get_terminal_writer()
        progress = ProgressLine(
            directory,
            total,
            stream_of(self._config),  # whose descriptor is needed
            is_tty=reporter.isatty and alone,
            column=lambda: writer.width_of_current_line,
        )
        progress.start()
        self._manager.register(
            PausedProgressLine(progress, reporter, alone=processes == 1), "touchstone-quiet"
        )
        return progress

    def sections(self, summary: Summary) -> list[dict[str, str]]:
        """Return the sections that others add to the report; one that is no pair of texts is noted."""
        sections = []
        for returned in self.call("pytest_touchstone_terminal_sections", summary=summary):
            if isinstance(returned, tuple) and list(map(type, returned)) == [str, str]:
                sections.append(dict(zip(("title", "text"), map(redact, returned), strict=True)))
            else:
                self.note(f"pytest_touchstone_terminal_sections: {returned!r:.80} is no title with a text", 1)
        return sections

    def write_report(self, reporter: pytest.TerminalReporter, summary: Summary) -> None:
        """Write what the letters of the tests mean, the report, what could not be done, and annotations."""
        reporter.currentfspath = None  # its first line would come after an empty one
        properties = [dict(report.user_properties) for report in reporter.stats.get("passed", ())]
        primaries = [float(row["touchstone_primary"]) for row in properties if "touchstone_primary" in row]
        if primaries and not self._config.option.verbose:
            reporter.write_line(f"letters: {letters_text(primaries)}")
        width, details = self._config.get_terminal_writer().fullwidth, self._config.get_verbosity() > 0
        decision = not _ends_with_gate(summary) and not summary.stopped
        text = terminal.render(summary, width, reporter.hasmarkup, details=details, decision=decision)
        reporter.section("benchmarks")
        for line in (
            *text.splitlines(),
            *(line for notice in self.notices for line in notice.line.split("\n")),
        ):
            reporter.write_line(line)
        if self._on_github:
            stream_of(self._config).writelines(
                f"{line}\n" for line in ci.gate_commands(reportable_part(summary))
            )

    def write_last_lines(
        self, summary: Summary | None, status: int, stopped: RunDirectory | None = None
    ) -> None:
        """Write warnings and remedies below pytest's own last line; last, how a ``stopped`` run goes on."""
        reporter = self._manager.get_plugin("terminalreporter")
        if reporter is None:
            return
        width = self._config.get_terminal_writer().fullwidth
        lines = [] if summary is None or stopped else invalid_paragraphs(summary, width)
        for one in (one for one in self.notices if one.exit_code):
            lines += wrapped(f"error (exit code {int(status)}): {one.line}", width)
        gate = summary.gate if summary is not None and _ends_with_gate(summary) else None
        if gate is not None and (stopped is None or status == gate["exit_code"]):
            lines += wrapped(gate["text"], width)
        if stopped is not None:
            scored = 0
            with suppress(JournalError):
                records = latest_records(iter_records(stopped.path, exchanges=False)).values()
                scored = sum(record.status == "scored" for record in records)
            lines.append(resume_text(scored, self._total, stopped.read_manifest()))
        for line in lines:
            reporter.write_line(line, yellow=True)


# Trackers


TRACKER_SECONDS: Final = 60.0
"""The time that a run waits for a tracker."""


def make_tracker_hooks(name: str) -> TrackerReporter:
    """Return a tracker's hooks; raise ``pytest.UsageError`` where something must be installed or set first."""
    (tracker,) = (tracker for tracker in trackers() if tracker.name == name)
    if (lacking := tracker.missing()) is not None:
        raise pytest.UsageError(f"--{name}: {lacking}")
    return TrackerReporter(tracker)


@dataclass(frozen=True, slots=True, eq=False)
class TrackerReporter:
    """Sends a finished run to a tracker by ``touchstone export``, in a process with a limit of time.

    So nothing of a tracker's client is in pytest's process, and whatever it does, the run ends with its results and its
    exit code.
    """

    tracker: Tracker
    seconds: float = TRACKER_SECONDS

    @pytest.hookimpl(trylast=True)  # the run's files are there by then
    def pytest_touchstone_run_finished(self, summary: Summary) -> str:
        folder = Path(summary.directory)
        command = [
            sys.executable,
            "-P",
            "-m",
            "pytest_touchstone.cli",
            "export",
            str(folder),
            f"--format={self.tracker.name}",
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,  # a client without a key asks for none
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return self._failed(folder, f"not done after {self.seconds:g} s", "sends the rest")
        except OSError as error:
            return self._failed(folder, str(error), "sends it")
        if done.returncode:
            ours = [line for line in done.stderr.splitlines() if line.startswith("touchstone: ")]
            last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
            return self._failed(folder, ours[-1].removeprefix("touchstone: ") if ours else last, "sends it")
        return done.stdout.strip()

    def _failed(self, folder: Path, why: str, later: str) -> str:
        why = why.removeprefix(f"{self.tracker.title}: ")
        return (
            f"warning: {self.tracker.title} does not have all of this run: {why}; "
            f"`touchstone export {shown_path(folder)} --format {self.tracker.name}` {later}"
        )
