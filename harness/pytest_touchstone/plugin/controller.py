"""``Controller``: a run in the process that a person has started.

It begins the run, takes note of every item that is reported, and at the end writes, judges and shows what was found.
The workers of xdist answer items, as this process does without them, and have no such part.

SIGTERM ends a run as Ctrl-C does, and another Ctrl-C ends the writing of its results. pytest does the rest: it ends the
run at Ctrl-C, and calls the hooks of the session's end.
"""

from __future__ import annotations

import functools
import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_touchstone.checkpoints.resolve import no_checkpoint_message
from pytest_touchstone.core.errors import ExitCode, HarnessError
from pytest_touchstone.core.hooks import StartedRun
from pytest_touchstone.core.settings import DEFAULT, OPTION
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.plugin import NO_CHECKPOINT, markdown_given
from pytest_touchstone.plugin.batches import most_items, schedule_batches
from pytest_touchstone.plugin.gate import FINE
from pytest_touchstone.plugin.item_errors import SAME, first_of_each_error
from pytest_touchstone.plugin.planned import collected_items, declarations_of
from pytest_touchstone.plugin.reporters import HookCaller, check_output_paths, check_paths, tell_failure
from pytest_touchstone.plugin.run_results import RunResults
from pytest_touchstone.plugin.session import TOLD, EvalSession
from pytest_touchstone.results.reuse import find_earlier_runs, write_reuse_plan
from pytest_touchstone.results.summary import NOT_REACHED, base_name

if TYPE_CHECKING:
    from pytest_touchstone.core.eval_config import EvalConfig
    from pytest_touchstone.reports.progress import ProgressLine
    from pytest_touchstone.results.records import Record
    from pytest_touchstone.results.summary import Summary

MOST_CRASHES: Final = 2
"""An item is given up when this many workers have died running it."""

LOGGED: Final = 20
"""The damaged records of earlier runs that ``run.log`` names."""


class Controller(EvalSession):
    """The course of a run, from its manifest to its last line."""

    def __init__(self, config: pytest.Config, worker_input: Mapping[str, Any]) -> None:
        self._interrupts = Interrupts()
        config.add_cleanup(self._interrupts.close)
        self._results: RunResults | None = None
        self._summary: Summary | None = None
        self._progress: ProgressLine | None = None
        self._plans: dict[str, Callable[..., str]] = {}
        self._crashes: Counter[str] = Counter()
        self._damaged: dict[str, None] = {}
        self._unscored: set[str] = set()
        super().__init__(config, worker_input)

    def _create(self) -> None:
        super()._create()
        settings, base = self.settings, self.config.invocation_params.dir
        if settings.run_id and self.directory.used():
            raise pytest.UsageError(self.directory.refusal)
        if settings.checkpoint:
            self.collection.known_checkpoints()
        if settings.judge is not None:
            self.collection.known_judge()
        self._gate = self._open_gate()
        if settings.shard is not None:
            from pytest_touchstone.plugin.shards import check_shard

            check_shard(settings, judged=self._gate.plan is not None)
        markdown = base / settings.markdown if settings.markdown else None
        if settings.origins["output"] != DEFAULT or markdown is not None:
            check_paths(self.directory.path.parent, markdown)
        if settings.file is not None:
            check_output_paths(settings.file, base)
        self._calls = HookCaller(
            self.config, markdown, self._unscored, settings.trackers, beside=settings.beside
        )

    # Workers

    def for_workers(self) -> dict[str, Any]:
        """Return the input of xdist's workers: where to write, what to score, and an error if there is one."""
        if self.fault is not None:
            return {"fault": self.fault, "run": ""}
        return {
            "run": str(self.directory.path),
            "token": self.directory.token,
            "checkpoints": self.collection.give(),
            "fault": None,
        }

    def workers_collected(self) -> None:
        """Begin, when the first of xdist's workers has collected; its items come to the workers in batches."""
        if self.begin():
            schedule_batches(self.config, most_items(self.collection), self.directory.quarantine)

    def worker_ended(self, worker_output: dict[str, Any]) -> None:
        """Take what a worker has told; raises ``pytest.UsageError`` for a mistake that it has found."""
        self.fault = self.fault or worker_output["fault"]
        self._damaged |= dict.fromkeys(worker_output["damaged"])
        self.raise_fault()
        self.collection.nothing = self.collection.nothing or worker_output["nothing"]
        self.collection.unasked += worker_output["unasked"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Let an item whose worker crashed run once more, alone: the first crash may not be its fault."""
        if self._results is None:
            return
        self._crashes[crashitem] += 1
        again = self._crashes[crashitem] < MOST_CRASHES
        self.directory.log(
            f"a worker died while running {crashitem}; {'it runs again, alone' if again else 'given up'}"
        )
        if again:
            report.outcome = "rerun"  # type: ignore[assignment]
            sched.mark_test_pending(crashitem)

    # Begin

    def pytest_collectreport(self) -> None:
        """Report mistakes at once, and not when everything has been collected."""
        self.raise_fault()

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say which benchmarks --eval-tasks selects.

        At ``--co`` also say what was left out, which a run says below its table.
        """
        if self.fault is not None:
            return []
        settings, specs = self.settings, self.collection.specs.values()
        names = [spec.name for spec in specs if self.collection.tasks.chosen(spec)]
        is_by_file = settings.file is not None and settings.origins["tasks"] != OPTION
        option = f"--eval-config {settings.origins['tasks']}"
        option = option if is_by_file else f"--eval-tasks {','.join(settings.tasks)}"
        lines = [f"{option}: {join_names(names)} (of {len(specs)})"] if settings.tasks and names else []
        lines += [self._share.line] if self._share is not None else []
        if self.config.option.collectonly:
            lines += [f"failed to load {failed.name}: {failed.message}" for failed in self.collection.failed]
            lines += [f"deselected {line}" for line in self.collection.deselected]
        return lines

    @pytest.hookimpl(specname="pytest_collection_finish", trylast=True)
    def pytest_collection_finish_of_all(self) -> None:
        """Begin, when everybody has taken what was collected."""
        self.begin()

    def begin(self) -> bool:
        """Write the manifest and start the progress line, once, where there is a benchmark; return whether it did.

        Raises ``pytest.UsageError`` where that cannot be.
        """
        if self.fault is not None or self._results is not None or not self.directory.collected.is_file():
            return False
        with self._ending():
            if not self.directory.is_claimed():  # it is another run's; a worker has found that, and says so
                return False
            self._begin(RunResults(self.directory))
            return True

    def _begin(self, results: RunResults) -> None:
        directory, settings, collection = self.directory, self.settings, self.collection
        self._gate.check(results.items, results.declarations)
        used = [info for info in collection.known_checkpoints() if info.name in results.checkpoints]
        run_facts = {"run_id": directory.run_id, "began": self._began, "settings": settings.recorded()}
        if settings.demonstration:
            run_facts["demonstration"] = True
        if (judge := collection.judge) is not None:
            run_facts["judge"] = {"name": judge.info.name, "fingerprint": judge.fingerprint}
        self._gate.check_baselines(results.items, results.declarations, run_facts, used)
        manifest = results.write_manifest(run_facts, self.config, used, collection.failed)
        self._calls.tell_beginning(manifest, len(results.items))
        if not settings.no_cache:
            damaged: list[str] = []
            write_reuse_plan(directory.path, find_earlier_runs(manifest, directory.path.parent, damaged))
            self._damaged |= dict.fromkeys(damaged)
        size, names = len(results.items), ", ".join(sorted(results.checkpoints))
        directory.log(f"begin: {size} items, {names}, {settings.workers} process(es)")
        for line in results.deselected:
            directory.log(f"left out: {line}")
        self._results = results
        self._calls.call(
            "pytest_touchstone_run_started", run=StartedRun(directory.run_id, directory.path, size, manifest)
        )
        self._progress = self._calls.start_progress(
            directory.path, size, settings.workers, results.checkpoint_of
        )

    # Plans

    def _make_plans(self, items: list[pytest.Item]) -> None:
        from pytest_touchstone.plugin.dry_run import dry_run
        from pytest_touchstone.reports.plan import render, render_dry_run

        rows = dry_run(items, self.collection, self.settings, self.engine)
        self._plans["dry run"] = functools.partial(render_dry_run, rows)
        if self._gate.plan is not None:
            collected = collected_items(items)
            plan = self._gate.make_plan(collected, declarations_of(items))
            checkpoints = len({item.checkpoint for item in collected})
            self._plans["plan of the gate"] = functools.partial(render, plan, checkpoints=checkpoints)

    @pytest.hookimpl(specname="pytest_runtestloop", tryfirst=True)
    def pytest_runtestloop_of_plans(self, session: pytest.Session) -> bool | None:
        """Run nothing where only a dry run was asked for."""
        if not self.only_plans:
            return None
        return None if session.testsfailed else True

    # Items

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a finished item; raises ``pytest.UsageError`` for what ends the run.

        Such is a run of which no checkpoint can be loaded.
        """
        if (results := self._results) is None:
            return
        facts = getattr(report, TOLD, {})
        if "fatal" in facts:
            raise pytest.UsageError(facts["fatal"])
        if "stop" in facts:
            raise pytest.exit.Exception(facts["stop"])
        if "failed" in facts:
            name, self._messages[name] = facts["failed"]
            if self._messages.keys() >= results.checkpoints:
                raise pytest.UsageError(no_checkpoint_message(list(self._messages.values())))
        if report.when == "teardown":
            self._tell_records(results)
            checkpoint = results.reported(report.nodeid)
            if checkpoint is not None and len(results.checkpoints) > 1:
                self._checkpoint_finished(checkpoint, results)

    def _tell_records(self, results: RunResults) -> None:
        if self._calls.wanted("pytest_touchstone_item_finished"):
            for record in results.new_records():
                self._calls.call("pytest_touchstone_item_finished", record=record)

    def _checkpoint_finished(self, name: str, results: RunResults) -> None:
        """Write a checkpoint's results as soon as they are complete, whatever becomes of the others.

        What cannot be written now is tried again, and reported, at the end.
        """
        try:
            summary = results.of_checkpoint(name, time.time() - self._began)
        except (HarnessError, OSError) as error:
            self.directory.log(f"{name}: its results are written at the end: {error}")
            return
        self._calls.call("pytest_touchstone_checkpoint_finished", summary=summary)
        self.directory.log(f"ended: {name}")

    # The end

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """From now on nothing is asked any more: Ctrl-C ends the reporting alone."""
        self._interrupts.arm()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End in a line what xdist does not expect: that workers are gone before they answer."""
        if is_worker_failure(excinfo):
            raise pytest.exit.Exception(WORKERS_ENDED, ExitCode.NOT_VALID)

    def _end_progress(self) -> None:
        super()._end_progress()
        if self._progress is not None:
            self._progress.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Finish before every other plugin.

        pytest-json-report reads the exit code and writes its file in its own hook. Ctrl-C once more, while pytest shows
        the results, would end in a traceback of pytest.
        """
        try:
            self._interrupts.arm()
            self._end_progress()
            # After a usage error there is nothing to summarize: the one line that says what is wrong stands alone.
            if not self._is_mistaken(session) and not self._interrupts.finished(
                lambda: self._finish(session)
            ):
                session.exitstatus = pytest.ExitCode.INTERRUPTED
                self._summary = None  # Ctrl-C has ended the run before its results were written
            result = yield
            if hasattr(self, "directory"):
                self.directory.discard()  # where nothing was begun; workers have ended by now
            if not self._is_mistaken(session):
                summary, begun = self._summary, self._results is not None
                stopped = summary.stopped if summary else session.exitstatus == ExitCode.INTERRUPTED
                self._calls.write_last_lines(
                    summary, session.exitstatus, self.directory if begun and stopped else None
                )
        except KeyboardInterrupt:
            raise pytest.exit.Exception(STOPPED, ExitCode.INTERRUPTED) from None
        return result

    def _is_mistaken(self, session: pytest.Session) -> bool:
        return self.fault is not None or session.exitstatus == pytest.ExitCode.USAGE_ERROR

    def _finish(self, session: pytest.Session) -> None:
        """Check every collected item against the journal, summarize, judge, and report; set the exit code."""
        self._damaged |= dict.fromkeys(self.damaged)
        if self._damaged:
            for line in itertools.islice(self._damaged, LOGGED):
                self.directory.log(f"not reused: {line}")
            records = count(len(self._damaged), "record")
            self._calls.note(f"{records} of earlier runs not reused, such as {next(iter(self._damaged))}")
        if self._results is not None:
            self._report(self._results, session)
        elif not self.only_plans and (text := self._gate.nothing_ran(session.exitstatus)) is not None:
            if self.collection.nothing is None:  # which says it better
                self._calls.note(text)
            session.exitstatus = self._gate.exit_code(session.exitstatus)
        worst = max((notice.exit_code for notice in self._calls.notices), default=0)
        if worst and session.exitstatus in (FINE if worst == ExitCode.NOT_VALID else FINE[:1]):
            session.exitstatus = worst

    def _report(self, results: RunResults, session: pytest.Session) -> None:
        if self.settings.shard is not None and not results.items:
            from pytest_touchstone.results.merging import read_share

            share = read_share(self.directory.path)
            if session.exitstatus == ExitCode.NOTHING and share is not None and not share.places:
                session.exitstatus = ExitCode.OK  # there are fewer items than shards
            self.directory.log("end: no items")
            return
        early = bool(session.shouldstop or session.shouldfail) or session.exitstatus not in FINE
        infos = self.collection.known_checkpoints()
        try:
            self.directory.check_kept()
            summary, records = results.whole(
                functools.partial(self._why_lost, early=early), time.time() - self._began
            )
            paths = {info.name: str(info.path) for info in infos}
            failed = [
                {"name": row.name, "path": row.path, "message": row.message} for row in self.collection.failed
            ]
            failed += [
                {"name": name, "path": paths.get(name, ""), "message": message}
                for name, message in self._messages.items()
            ]
            summary = replace(summary, failed_to_load=failed)
            kept = results.save(summary, records)
            if (file := self.settings.file) is not None:
                self._write_benchmark_files(file, summary, records)
            summary = replace(
                summary, changes=results.changes(kept, self._gate.published), leaders=results.leaders(kept)
            )
            fault = self._fault_of(summary)
            faulty = (summary.faults or fault) and session.exitstatus in FINE
            status = ExitCode.NOT_VALID if faulty else session.exitstatus
            asked = [info.name for info in infos] if self.settings.checkpoint else []
            self._summary = self._gate.judge(summary, kept, asked, fault=fault, status=status)
        except (HarnessError, OSError, MemoryError) as error:
            why = str(error) if isinstance(error, HarnessError) else self.directory.unwritten(error)
            self._calls.note(f"the results cannot be written: {why}", ExitCode.NOT_VALID)
            return
        session.exitstatus = self._gate.exit_code(status)
        self._unscored |= {record.item for record in records if record.status != "scored"}
        self._tell_records(results)
        self._summary = replace(self._summary, sections=self._calls.sections(self._summary))
        size = len(results.items)
        del records, kept  # reports are made of the journal, line by line
        results.forget()
        if len(results.checkpoints) == 1 and not early:
            self._calls.call("pytest_touchstone_checkpoint_finished", summary=self._summary)
        for text in self._calls.call("pytest_touchstone_run_finished", summary=self._summary):
            self._calls.note(text)
        counts = Counter(fault["status"] for fault in summary.faults)
        self.directory.log(f"end: {size} items, {dict(counts) or 'no faults'}")

    def _why_lost(self, item: str, *, early: bool) -> str:
        """Return why no process has recorded an item; ``early`` says that the session was stopped."""
        if crashes := self._crashes[item]:
            return f"its worker died {crashes} times while running it"
        return NOT_REACHED if early else "no process has recorded it"

    def _write_benchmark_files(self, file: EvalConfig, summary: Summary, records: Iterable[Record]) -> None:
        """Write a log and the results of each benchmark, as the file of ``--eval-config`` asks for them."""
        from pytest_touchstone.reports.files import write_benchmark_files

        # By name: under xdist the workers alone have the declarations.
        names = [base_name(result.benchmark) for result in summary.results]
        asked = {name: file.asking_named(name) for name in names}
        asked |= {loaded.spec.name: loaded.asking for loaded in self.collection.loaded.values()}
        folder = self.config.invocation_params.dir
        write_benchmark_files(self.directory.path, summary, records, asked, folder)

    def _fault_of(self, summary: Summary) -> str | None:
        """Return what speaks against the run besides faults of items."""
        if self.settings.strict and any(result.invalid for result in summary.results):
            return "a result is not valid (--eval-strict)"
        names = ", ".join(failed["name"] for failed in summary.failed_to_load)
        return f"{names} cannot be used" if names else None

    @pytest.hookimpl(specname="pytest_terminal_summary", wrapper=True, tryfirst=True)
    def pytest_terminal_summary_of_errors(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, None, None]:
        """Show only the first report of each error: the same error of many items is one block.

        pytest's counts, the journal and ``errors.log`` have all of them, and ``-vv`` shows them.
        """
        stats = terminalreporter.stats
        whole: dict[str, list[Any]] = {name: stats[name] for name in ("failed", "error") if name in stats}
        if self.config.get_verbosity() < 2:  # -vv
            stats.update((name, first_of_each_error(reports)) for name, reports in whole.items())
        try:
            return (yield)
        finally:
            stats.update(whole)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Write the table of results, and the sections of others, on the terminal."""
        if self.fault is not None:
            return
        reporter, width = terminalreporter, self.config.get_terminal_writer().fullwidth
        for title, render in self._plans.items():
            reporter.write_sep("=", title)
            reporter.write_line(render(width=width, color=reporter.hasmarkup))
        if names := dict.fromkeys(self.collection.unasked):
            reporter.write_line(f"skipped {join_names(names)}: {NO_CHECKPOINT}")
        for note in self.settings.notes:
            reporter.write_line(note, yellow=True)
        if self._summary is not None:
            self._calls.write_report(reporter, self._summary)
            if self.config.get_verbosity() < 2:  # -vv
                # The report has just named them: pytest's short summary is left to ordinary tests.
                for name in reporter.stats.keys() & {"failed", "error"}:
                    reporter.stats[name] = [
                        report for report in reporter.stats[name] if not hasattr(report, SAME)
                    ]
            return
        if self.collection.nothing is not None and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            reporter.write_line(self.collection.nothing)
        for notice in self._calls.notices:
            if not notice.exit_code:  # which is said below pytest's last line
                reporter.write_line(notice.line)

    def tell_failure(self, code: int, message: str) -> None:
        """Tell jobs of continuous integration of a run that ends without results."""
        if self._summary is None:
            settings = getattr(self, "settings", None)  # none where they are the mistake
            markdown = settings.markdown if settings is not None else markdown_given(self.config.option)
            message = message or "no results were written; the log says why"
            tell_failure(self.config.invocation_params.dir, markdown, code, message)


# Interrupts


STOPPED: Final = "stopped; what is scored is kept, and the same command goes on from there"

WORKERS_ENDED: Final = (
    "workers of xdist have ended before they answered, killed from outside or for lack of memory; what is scored is "
    "kept: give the same command again, with a smaller -n where memory is short"
)


class Interrupts:
    """The handlers of a run's signals until ``close``; a thread that is not the main one has none."""

    def __init__(self) -> None:
        """Handle SIGTERM, unless it is handled already."""
        self._before: dict[signal.Signals, Any] = {}
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._handle(signal.SIGTERM, _forward_interrupt)

    def _handle(self, number: signal.Signals, handler: Any) -> None:
        with suppress(ValueError):  # only the main thread may
            self._before.setdefault(number, signal.signal(number, handler))

    def arm(self) -> None:
        """Ignore Ctrl-C and SIGTERM while pytest ends the run, where they would show a traceback of pytest."""
        self._handle(signal.SIGINT, signal.SIG_IGN)
        if signal.SIGTERM in self._before:
            self._handle(signal.SIGTERM, signal.SIG_IGN)

    def finished(self, work: Callable[[], None]) -> bool:
        """Do some work that Ctrl-C and SIGTERM may end; return whether it was done."""
        try:
            self._handle(signal.SIGINT, signal.default_int_handler)
            if signal.SIGTERM in self._before:
                self._handle(signal.SIGTERM, _forward_interrupt)
            work()
        except KeyboardInterrupt:
            return False
        finally:
            self.arm()
        return True

    def close(self) -> None:
        """Give the signals back."""
        # Python itself ends by the signal, and not with our exit code, where Ctrl-C was last seen to leave an exec,
        # such as that of an import.
        exec("")
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()


def _forward_interrupt(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now; a process in the background ignores that."""
    __tracebackhide__ = True  # pytest then names the place that was reached
    pressed = signal.getsignal(signal.SIGINT)
    (pressed if callable(pressed) else signal.default_int_handler)(signal.SIGINT, frame)


def is_worker_failure(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether xdist could not speak to a worker (``WorkerController.setup``), or has none left
    (``DSession.loop_once``, xdist 3.8)."""
    last = str(excinfo.traceback[-1].frame.f_globals.get("__name__"))
    lost = isinstance(excinfo.value, (EOFError, OSError)) and last.startswith("execnet.")
    return lost or (isinstance(excinfo.value, RuntimeError) and last == "xdist.dsession")
