"""``Controller``: the part of a run that the process has which a person has started.

It begins the run, takes note of every item that is reported, and at the end writes, judges and shows what was found.
The workers of xdist answer items, as this process does without them, and have no such part.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import FailedToLoad, none_usable
from pytest_touchstone.core.errors import ExitCode, HarnessError
from pytest_touchstone.core.hooks import Run
from pytest_touchstone.core.settings import DEFAULT
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.gate import FINE, GateSession
from pytest_touchstone.results.summary import NOT_REACHED

if TYPE_CHECKING:
    from pytest_touchstone.plugin.collection import Collection
    from pytest_touchstone.plugin.options import Settings
    from pytest_touchstone.plugin.run_results import RunResults
    from pytest_touchstone.reports.progress import ProgressLine
    from pytest_touchstone.results.records import Record
    from pytest_touchstone.results.run_directory import RunDirectory
    from pytest_touchstone.results.summary import Summary

MOST_CRASHES: Final = 2
"""An item is given up when this many workers have died running it."""

TOLD: Final = "touchstone"
"""The attribute of a report in which a worker tells its controller something, since only reports are sure to
arrive."""


class WorkerCrashes:
    """The number of workers that died, by item."""

    def __init__(self) -> None:
        self._crashes: Counter[str] = Counter()

    def again(self, item: str) -> bool:
        """Note that a worker died while it ran the item; return whether the item runs once more."""
        self._crashes[item] += 1
        return self._crashes[item] < MOST_CRASHES

    def why_lost(self, item: str, *, early: bool) -> str:
        """Return why no process has recorded an item; ``early`` says that the session was stopped."""
        if crashes := self._crashes[item]:
            return f"its worker died {crashes} times while running it"
        return NOT_REACHED if early else "no process has recorded it"


class FailedCheckpoints:
    """The checkpoints that failed to load, as far as this process knows.

    Where there is a single checkpoint, and it fails to load, the run ends there, in one line. Of several, the others go
    on. Every item of one that failed is an error in the journal. pytest shows the first of them as an error and the
    others as skipped, since the same line four hundred times helps nobody. Where none can be loaded the run ends as
    with a single one.
    """

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self._shown: set[str] = set()

    def tell(self, report: pytest.TestReport, checkpoint: str, message: str, *, several: bool) -> None:
        """Attach the fault to the report of an item that needs the checkpoint."""
        if not several:
            setattr(report, TOLD, {"fatal": message})
        elif checkpoint not in self._shown:
            self._shown.add(checkpoint)
            setattr(report, TOLD, {"failed": [checkpoint, message]})
        else:
            path, line, _ = report.location
            report.outcome = "skipped"
            report.longrepr = (path, line or 0, f"Skipped: {checkpoint} failed to load, as said before")

    def rows(self, unknown: Iterable[FailedToLoad], infos: Iterable[CheckpointInfo]) -> list[dict[str, str]]:
        """Return the checkpoints that could not be recognised, then those of ``infos`` that could not be loaded."""
        paths = {info.name: str(info.path) for info in infos}
        rows = [(one.name, one.path, one.message) for one in unknown]
        rows += [(name, paths.get(name, ""), message) for name, message in self.messages.items()]
        return [dict(zip(("name", "path", "message"), row, strict=True)) for row in rows]

    def take(self, report: pytest.TestReport, checkpoints: Iterable[str]) -> None:
        """Note what a report tells, in the controller.

        Raises ``pytest.UsageError`` for faults after which no run can go on, and where none of ``checkpoints`` can be
        loaded.
        """
        told = getattr(report, TOLD, None)
        if told is None:
            return
        if "fatal" in told:
            raise pytest.UsageError(told["fatal"])
        if "stop" in told:
            raise pytest.exit.Exception(told["stop"])
        name, message = told["failed"]
        self.messages[name] = message
        if self.messages.keys() >= set(checkpoints):
            raise pytest.UsageError(none_usable(list(self.messages.values())))


LOGGED: Final = 20
"""The damaged records of earlier runs that ``run.log`` names."""


class Scored:
    """The items with a score, when a run has ended: all but the ``unscored`` ones, which are few."""

    def __init__(self) -> None:
        self.unscored: set[str] = set()

    def __contains__(self, item: object) -> bool:
        return item not in self.unscored


class Controller:
    """The course of a run, from its manifest to its last line; ``gate`` judges it."""

    def __init__(
        self,
        config: pytest.Config,
        *,
        settings: Settings,
        directory: RunDirectory,
        collection: Collection,
        gate: GateSession,
        failed: FailedCheckpoints,
        began: float,
    ) -> None:
        """``failed`` are the checkpoints that this process knows to have failed, as ``began`` is its beginning.

        Raises ``pytest.UsageError`` where the results could not be written, or not to a tracker.
        """
        from pytest_touchstone.plugin.reporters import Calls, check_output_paths, check_paths

        self._config = config
        self._settings = settings
        self._directory = directory
        self._collection = collection
        self.gate = gate
        self._failed = failed
        self._began = began
        self._results: RunResults | None = None
        self._summary: Summary | None = None
        self._progress: ProgressLine | None = None
        self._crashes = WorkerCrashes()
        self._damaged: dict[str, None] = {}
        self._scored = Scored()
        markdown = config.invocation_params.dir / settings.markdown if settings.markdown else None
        if settings.origins["output"] != DEFAULT or markdown is not None:
            check_paths(directory.path.parent, markdown)
        if settings.file is not None:
            check_output_paths(settings.file, config.invocation_params.dir)
        self._hooks = Calls(config, markdown, self._scored, settings.trackers, beside=settings.beside)

    @property
    def reported(self) -> bool:
        """Return whether results were written."""
        return self._summary is not None

    # Begin

    def begin(self) -> bool:
        """Write the manifest and start the progress line, once, where there is a benchmark; return whether it did."""
        if self._results is not None or not self._directory.collected.is_file():
            return False
        if not self._directory.is_claimed():  # it is another run's; a worker has found that, and says so
            return False
        from pytest_touchstone.plugin.run_results import RunResults
        from pytest_touchstone.results.reuse import decide, write_decision

        results = RunResults(self._directory)
        infos = self._collection.known_checkpoints()
        self.gate.check(results.items, results.declarations, [info.name for info in infos])
        used = [info for info in infos if info.name in results.checkpoints]
        told = {
            "run_id": self._directory.run_id,
            "began": self._began,
            "settings": self._settings.recorded(),
        }
        if self._settings.demonstration:
            told["demonstration"] = True
        if (judge := self._collection.judge) is not None:
            told["judge"] = {"name": judge.info.name, "fingerprint": judge.fingerprint}
        self.gate.check_baselines(results.items, results.declarations, told, used)
        manifest = results.write_manifest(told, self._config, used, self._collection.failed)
        self._hooks.tell_beginning(manifest, len(results.items))
        if not self._settings.no_cache:
            damaged: list[str] = []
            write_decision(self._directory.path, decide(manifest, self._directory.path.parent, damaged))
            self.tell_damaged(damaged)
        size, names = len(results.items), ", ".join(sorted(results.checkpoints))
        self._directory.log(f"begin: {size} items, {names}, {self._settings.workers} process(es)")
        for line in results.deselected:
            self._directory.log(f"left out: {line}")
        self._results = results
        self._hooks.call(
            "pytest_touchstone_run_started",
            run=Run(self._directory.run_id, self._directory.path, size, manifest),
        )
        self._progress = self._hooks.start_progress(
            self._directory.path, size, self._settings.workers, results.checkpoint_of
        )
        return True

    def workers_collected(self) -> None:
        """Begin, when the first of xdist's workers has collected; its items come to the workers in batches."""
        if self.begin():
            from pytest_touchstone.plugin.batches import most_items
            from pytest_touchstone.plugin.xdist import schedule_batches

            limit = most_items(self._collection)
            schedule_batches(self._config, limit, self._directory.quarantine)

    # Items

    def item_reported(self, report: pytest.TestReport) -> None:
        """Take note of an item; raises ``pytest.UsageError`` for what ends the run."""
        if self._results is None:
            return
        self._failed.take(report, self._results.checkpoints)
        if report.when != "teardown":
            return
        self._tell_records(self._results)
        checkpoint = self._results.reported(report.nodeid)
        if checkpoint is not None and len(self._results.checkpoints) > 1:
            self._checkpoint_finished(checkpoint, self._results)

    def _tell_records(self, results: RunResults) -> None:
        if self._hooks.wanted("pytest_touchstone_item_finished"):
            for record in results.new_records():
                self._hooks.call("pytest_touchstone_item_finished", record=record)

    def _checkpoint_finished(self, name: str, results: RunResults) -> None:
        """Write a checkpoint's results as soon as they are complete, whatever becomes of the others.

        What cannot be written now is tried again, and reported, at the end.
        """
        try:
            summary = results.of_checkpoint(name, time.time() - self._began)
        except (HarnessError, OSError) as error:
            self._directory.log(f"{name}: its results are written at the end: {error}")
            return
        self._hooks.call("pytest_touchstone_checkpoint_finished", summary=summary)
        self._directory.log(f"ended: {name}")

    def worker_crashed(self, item: str) -> bool:
        """Take note of a worker that died in an item; return whether the item runs once more."""
        if self._results is None:
            return False
        again = self._crashes.again(item)
        self._directory.log(
            f"a worker died while running {item}; {'it runs again, alone' if again else 'given up'}"
        )
        return again

    # Finish

    def end_progress(self) -> None:
        """End the progress line; calling it again does nothing."""
        if self._progress is not None:
            self._progress.stop()

    def tell_damaged(self, lines: Iterable[str]) -> None:
        """Take note of records of earlier runs that a process did not believe."""
        self._damaged |= dict.fromkeys(lines)

    def finish(self, session: pytest.Session) -> None:
        """Check every collected item against the journal, summarize, judge, and report; set the exit code."""
        if self._damaged:
            for line in itertools.islice(self._damaged, LOGGED):
                self._directory.log(f"not reused: {line}")
            what = f"{count(len(self._damaged), 'record')} of earlier runs not reused"
            self._hooks.note(f"{what}, such as {next(iter(self._damaged))}")
        if self._results is not None:
            self._finish(self._results, session)
        elif (text := self.gate.nothing_ran(session)) is not None:
            if self._collection.nothing is None:  # which says it better
                self._hooks.note(text)
            session.exitstatus = self.gate.exit_code(session.exitstatus)
        worst = max((one.exit_code for one in self._hooks.notices), default=0)
        if worst and session.exitstatus in (FINE if worst == ExitCode.NOT_VALID else FINE[:1]):
            session.exitstatus = worst

    def _finish(self, results: RunResults, session: pytest.Session) -> None:
        if self._settings.shard is not None and not results.items:
            self._finish_empty(session)
            return
        early = bool(session.shouldstop or session.shouldfail) or session.exitstatus not in FINE
        try:
            self._directory.check_kept()
            summary, records = results.whole(
                functools.partial(self._crashes.why_lost, early=early), time.time() - self._began
            )
            told = self._failed.rows(self._collection.failed, self._collection.known_checkpoints())
            summary = replace(summary, failed_to_load=told)
            kept = results.save(summary, records)
            if self._settings.file is not None:
                self._write_benchmark_files(summary, records)
            summary = replace(
                summary, changes=results.changes(kept, self.gate.published), leaders=results.leaders(kept)
            )
            fault = self._fault_of(summary)
            faulty = (summary.faults or fault) and session.exitstatus in FINE
            status = ExitCode.NOT_VALID if faulty else session.exitstatus
            self._summary = self.gate.judge(summary, kept, fault=fault, status=status)
        except (HarnessError, OSError, MemoryError) as error:
            why = str(error) if isinstance(error, HarnessError) else self._directory.unwritten(error)
            self._hooks.note(f"the results cannot be written: {why}", ExitCode.NOT_VALID)
            return
        session.exitstatus = self.gate.exit_code(status)
        self._scored.unscored |= {record.item for record in records if record.status != "scored"}
        self._tell_records(results)
        size = len(results.items)
        del records, kept  # reports are made of the journal, line by line
        results.forget()
        if len(results.checkpoints) == 1 and not early:
            self._hooks.call("pytest_touchstone_checkpoint_finished", summary=self._summary)
        for text in self._hooks.call("pytest_touchstone_run_finished", summary=self._summary):
            self._hooks.note(text)
        counts = Counter(fault["status"] for fault in summary.faults)
        self._directory.log(f"end: {size} items, {dict(counts) or 'no faults'}")

    def _finish_empty(self, session: pytest.Session) -> None:
        """End a shard that has no items; where there are fewer items than shards, that is no fault."""
        from pytest_touchstone.results.merging import read_share

        share = read_share(self._directory.path)
        if session.exitstatus == ExitCode.NOTHING and share is not None and not share.places:
            session.exitstatus = ExitCode.OK
        self._directory.log("end: no items")

    def _write_benchmark_files(self, summary: Summary, records: Iterable[Record]) -> None:
        """Write a log and the results of each benchmark, as the file of ``--eval-config`` asks for them."""
        from pytest_touchstone.reports.files import write_benchmark_files
        from pytest_touchstone.results.summary import base_name

        assert self._settings.file is not None
        # By name: under xdist the workers alone have the declarations.
        names = [base_name(result.benchmark) for result in summary.results]
        asked = {name: self._settings.file.asking_named(name) for name in names}
        asked |= {one.spec.name: one.asking for one in self._collection.loaded.values()}
        base = self._config.invocation_params.dir
        write_benchmark_files(self._directory.path, summary, records, asked, base)

    def unwritten(self) -> None:
        """Show no results: Ctrl-C has ended the run before they were written."""
        self._summary = None

    def _fault_of(self, summary: Summary) -> str | None:
        """Return what speaks against the run besides faults of items."""
        if self._settings.strict and any(result.invalid for result in summary.results):
            return "a result is not valid (--eval-strict)"
        names = ", ".join(one["name"] for one in summary.failed_to_load)
        return f"{names} cannot be used" if names else None

    def show(self, reporter: pytest.TerminalReporter, status: int) -> None:
        """Write the table of results, and the sections of others, on the terminal."""
        for note in self._settings.notes:
            reporter.write_line(note, yellow=True)
        self.gate.show_plan(reporter)
        if self._summary is not None:
            self._hooks.write_sections(reporter, self._summary)
            return
        if self._collection.nothing is not None and status == pytest.ExitCode.NO_TESTS_COLLECTED:
            reporter.write_line(self._collection.nothing)
        for one in self._hooks.notices:
            if not one.exit_code:  # which is said below pytest's last line
                reporter.write_line(one.line)

    def say_last_lines(self, status: int) -> None:
        """Write what must not be overlooked below pytest's own last line."""
        begun = self._results is not None
        stopped = self._summary.stopped if self._summary is not None else status == ExitCode.INTERRUPTED
        self._hooks.write_last_lines(self._summary, status, self._directory if begun and stopped else None)
