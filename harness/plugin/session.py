"""The controlling process: the manifest, live progress, crashed workers, the end of a run.

At the end every collected item is held against the journal, never against pytest's own counts: a worker that
dies while it sends a report can leave pytest with exit code 0.

When the last item of a checkpoint has been reported its results are written, whatever becomes of the others.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from harness.checkpoints import CheckpointInfo
from harness.checkpoints.series import Broken
from harness.core.errors import HarnessError
from harness.core.exit_codes import ExitCode
from harness.core.serialize import FATAL
from harness.plugin.broken_checkpoints import Unloadable
from harness.plugin.collection import Collection
from harness.plugin.gate import FINE, GateSession
from harness.plugin.options import Settings
from harness.plugin.reporters import Wrong, check_paths, commands, publish, shown
from harness.results.aggregate import summarize
from harness.results.journal import Following, Journal, latest, read_exchanges
from harness.results.records import Record
from harness.results.reuse import benchmarks_of, decide, write_decision
from harness.results.run_directory import RunDirectory, environment
from harness.results.store_entry import ItemScores, StoredResult
from harness.results.summary import Collected, Declaration, Result, Summary

MOST_CRASHES: Final = 2
"""An item that has taken this many workers with it is given up."""


class Controller:
    """Hooks of the process that a person started; registered there alone."""

    def __init__(
        self, config: pytest.Config, settings: Settings, directory: RunDirectory, collection: Collection
    ) -> None:
        self.config = config
        self.settings = settings
        self.directory = directory
        self.collection = collection
        self.summary: Summary | None = None
        self._gating = GateSession(config, settings, directory.path.parent)
        self._markdown = config.invocation_params.dir / settings.markdown if settings.markdown else None
        if config.getoption("--eval-output") is not None or self._markdown is not None:
            check_paths(directory.path.parent, self._markdown)
        self._unpublished: list[Wrong] = []
        self._began = time.time()
        self._begun = False
        self._progress: Any = None
        self._crashes: Counter[str] = Counter()
        self._unloadable = Unloadable()
        self._used: set[str] = set()
        self._ending: Ending | None = None
        self._ended: set[str] = set()

    # The beginning

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not session.config.option.collectonly and self.directory.collected.is_file():
            self._begin()

    def pytest_report_collectionfinish(self, config: pytest.Config) -> list[str]:
        """Says at ``--co`` what was left out; a run says it below its table."""
        if not config.option.collectonly:
            return []
        broken = [f"broken {one.name}: {one.message}" for one in self.collection.broken]
        return [*broken, *(f"deselected {line}" for line in self.collection.deselected)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["touchstone_run"] = str(self.directory.path)
        node.workerinput["touchstone_checkpoints"] = self.collection.give()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        fault = self.directory.read_fault()
        if fault is not None:
            raise pytest.UsageError(fault)
        if self.directory.collected.is_file():
            self._begin()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get("touchstone", {})  # one that died has none
        if told.get("fault") is not None:
            raise pytest.UsageError(told["fault"])
        self.collection.nothing = self.collection.nothing or told.get("nothing")

    def _begin(self) -> None:
        """Writes the manifest and starts the progress line; once."""
        if self._begun:
            return
        self._begun = True
        items, declarations, deselected = self.directory.read_collected()
        self._used = used = {item.checkpoint for item in items}
        infos = self.collection.known_checkpoints()
        self._gating.check(items, declarations, [info.name for info in infos])
        manifest = {
            "run_id": self.directory.run_id,
            "began": self._began,
            **environment(
                self.config.invocation_params.args,
                self.config.invocation_params.dir,
                self.config.rootpath,
            ),
            "checkpoints": [self._checkpoint_row(info) for info in infos if info.name in used],
            "settings": self.settings.recorded(),
            "benchmarks": benchmarks_of(declarations),
        }
        self.directory.write_manifest(manifest)
        if not self.settings.no_cache:
            decision = decide(manifest, self.directory.path.parent)
            write_decision(self.directory.path, decision)

        self._ending = Ending(self.directory, items, declarations)
        self._log(
            f"begin: {len(items)} items, {', '.join(sorted(used))}, {self.settings.workers} process(es)"
        )
        for line in deselected:
            self._log(f"left out: {line}")
        self._start_progress(len(items))

    def _checkpoint_row(self, info: CheckpointInfo) -> dict[str, Any]:
        """A checkpoint as the manifest knows it, with its fingerprint; that of one of several that cannot be read, or
        changes meanwhile, is None."""
        from harness.engines.registry import identity

        row = info.plain()
        try:
            row["fingerprint"] = identity(info)
        except HarnessError as error:
            if len(self._used) == 1:
                raise pytest.UsageError(str(error)) from None
            row["fingerprint"] = None
            self.collection.broken.append(Broken(info.name, info.source, str(info.path), str(error)))
        return row

    def _log(self, message: str) -> None:
        self.directory.log(message, time.time())

    def _start_progress(self, total: int) -> None:
        from harness.reports.progress import Progress

        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self.config.option.verbose < 0 or not total:
            return
        # With -s or live logs others write on the terminal too, out of turn: then plain lines, as for a file.
        alone = self.config.option.capture != "no" and not self.config.getoption("log_cli_level", None)
        self._progress = Progress(
            self.directory.path,
            total,
            reporter._tw._file,
            is_tty=reporter.isatty and alone,
            column=lambda: reporter._tw.width_of_current_line,
        )
        self._progress.start()
        if self._progress.live:
            self.config.pluginmanager.register(Quiet(self._progress), "touchstone-quiet")

    # While it runs

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        fatal = getattr(report, FATAL, None)
        if fatal is not None:
            raise pytest.UsageError(fatal)
        self._unloadable.take(report, self._used)
        if report.when == "teardown" and self._ending is not None:
            checkpoint = self._ending.take(report.nodeid)
            if checkpoint is not None and len(self._used) > 1:
                self._end_checkpoint(checkpoint)

    def _end_checkpoint(self, checkpoint: str) -> None:
        """Writes a checkpoint's results as soon as they are complete; what cannot be written now is tried again, and
        said, at the end."""
        from harness.reports.files import write_checkpoints

        assert self._ending is not None
        try:
            manifest = self.directory.read_manifest()
            summary, records = self._ending.results(checkpoint, manifest, time.time() - self._began)
            write_checkpoints(summary, manifest["benchmarks"])
            self._save_results(summary, records)
        except (HarnessError, OSError) as error:
            self._log(f"{checkpoint}: its results are written at the end: {error}")
            return
        self._ended.add(checkpoint)
        self._log(f"ended: {checkpoint}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """A first crash may not be the item's fault: it runs once more, alone."""
        self._crashes[crashitem] += 1
        again = self._crashes[crashitem] < MOST_CRASHES
        self._log(
            f"a worker died while running {crashitem}; {'it runs again, alone' if again else 'given up'}"
        )
        if again:
            report.outcome = "rerun"  # type: ignore[assignment]
            sched.mark_test_pending(crashitem)

    # The end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Before every other plugin's: pytest-json-report takes the exit code and writes its file in its own."""
        if self._progress is not None:
            self._progress.stop()
        # After a usage error there is nothing to sum up: the one line that says what is wrong stands alone.
        if self._begun and session.exitstatus != pytest.ExitCode.USAGE_ERROR:
            try:
                session.exitstatus = self._end(session)
            except (HarnessError, OSError) as error:
                self._unpublished.append(Wrong(f"the results cannot be written: {error}", asked=True))
                if session.exitstatus in FINE:
                    session.exitstatus = ExitCode.NOT_VALID
        elif not self._begun and (text := self._gating.nothing_ran(session)) is not None:
            if self.collection.nothing is None:  # which says it better
                self._unpublished.append(Wrong(text, asked=False))
            session.exitstatus = self._gating.exit_code(session.exitstatus)
        if any(one.asked for one in self._unpublished) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        found = yield
        if session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            self.directory.discard()  # now that workers have ended
        self._write_last_lines(session)
        return found

    def _write_last_lines(self, session: pytest.Session) -> None:
        """Below pytest's own last line: what must not be overlooked, and what to do about it."""
        from harness.reports.notes import last_lines, wrapped

        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        width = reporter._tw.fullwidth
        lines = [] if self.summary is None else last_lines(self.summary, width, self._limit_of)
        for one in (one for one in self._unpublished if one.asked):
            lines += wrapped(f"error (exit code {int(session.exitstatus)}): {one.line}", width)
        gate = (self.summary.gate if self.summary is not None else None) or {}
        if gate.get("mode") and (lines or gate["exit_code"]):
            lines += wrapped(gate["text"], width)
        for line in shown(lines, os.environ):
            reporter.write_line(line, yellow=True)

    def _limit_of(self, result: Result) -> int | None:
        """The most tokens that a text of a result could have: what the run was given, else what its benchmark asks for,
        from the first of its items."""
        from harness.reports.notes import token_limit

        if (given := self.settings.model.max_new_tokens) is not None:
            return given
        asked = (
            token_limit(exchange)
            for record in read_exchanges(self.directory.path, "Generate")
            if (record.benchmark, record.checkpoint) == (result.benchmark, result.checkpoint)
            for exchange in record.exchanges
            if exchange["kind"] == "Generate"
        )
        try:
            return next((int(limit) for limit in asked if limit), None)
        except HarnessError:  # the journal cannot be read, which has been said
            return None

    def _end(self, session: pytest.Session) -> int | pytest.ExitCode:
        from harness.reports.files import write_results
        from harness.reports.program_files import write_code_files
        from harness.results.aggregate import summarize

        items, declarations, deselected = self.directory.read_collected()
        early = bool(session.shouldstop or session.shouldfail) or session.exitstatus == 2
        assert self._ending is not None
        known = latest(self._ending.following.read())
        known |= self._record_lost([item for item in items if item.item not in known], early=early)
        manifest = self.directory.read_manifest()
        self.summary = summarize(
            known.values(),
            declarations,
            items,
            run_id=self.directory.run_id,
            directory=str(self.directory.path),
            manifest=manifest,
            checkpoints=manifest.get("checkpoints", []),
            deselected=deselected,
            seconds=time.time() - self._began,
            effort=self.directory.read_effort(),
        )
        self.summary = replace(self.summary, broken=self._broken())
        invalid = self.settings.strict and any(result.invalid for result in self.summary.results)
        results = self._save_results(self.summary, known.values())
        self.summary = replace(self.summary, changes=self._changes(results))
        names = ", ".join(one["name"] for one in self.summary.broken)
        fault = f"{names} cannot be used" if names else None
        fault = "a result is not valid (--eval-strict)" if invalid else fault
        faulty = (self.summary.faults or self.summary.broken or invalid) and session.exitstatus in FINE
        status = ExitCode.NOT_VALID if faulty else session.exitstatus
        self.summary = self._gating.judge(self.summary, results, fault=fault, status=status)
        write_results(self.summary)
        self._unpublished = publish(self.config, self.summary, self._markdown, os.environ)
        write_code_files(
            self.directory.path, {item for item, record in known.items() if record.status == "scored"}
        )
        counts = Counter(fault["status"] for fault in self.summary.faults)
        self._log(f"end: {len(items)} items, {dict(counts) or 'no faults'}")
        return self._gating.exit_code(status)

    def _broken(self) -> list[dict[str, str]]:
        """The checkpoints that could not be recognised, then those that could not be loaded."""
        paths = {info.name: str(info.path) for info in self.collection.known_checkpoints()}
        rows = [
            {"name": one.name, "path": one.path, "message": one.message} for one in self.collection.broken
        ]
        return rows + [
            {"name": name, "path": paths.get(name, ""), "message": message}
            for name, message in self._unloadable.messages.items()
        ]

    def _changes(self, results: Iterable[tuple[StoredResult, ItemScores]]) -> list[dict[str, Any]]:
        """What the run has changed against the best that is saved; a broken saved result costs this alone."""
        from harness.compare.gate.changes import changes_of
        from harness.results.store import ResultStore

        mine, store = [saved for saved, _ in results], ResultStore(self.directory.path.parent)
        try:
            earlier = [
                one
                for name in dict.fromkeys(saved.benchmark for saved in mine)
                for one in store.find(benchmark=name)
            ]
        except HarnessError as error:
            self._log(f"no changes against the best so far: {error}")
            return []
        return [one._asdict() for one in changes_of(mine, earlier)]

    def _save_results(
        self, summary: Summary, records: Iterable[Record]
    ) -> list[tuple[StoredResult, ItemScores]]:
        """Keeps each checkpoint's results where later runs find them, but for those that are kept already; gives them
        all."""
        from harness.results.store import ResultStore
        from harness.results.store_entry import saved_of

        store = ResultStore(self.directory.path.parent)
        codes = {one.name: one.code for one in summary.declarations}
        results = saved_of(summary, records, codes=codes)
        for saved, items in results:
            if items.examples and saved.checkpoint not in self._ended:
                store.save(saved, items)
        return results

    def _record_lost(self, missing: list[Collected], *, early: bool) -> dict[str, Record]:
        """Journals one record for every item that no process has recorded; gives them by item."""
        records: dict[str, Record] = {}
        if not missing:
            return records
        with Journal(self.directory.path, "lost") as journal:
            for item in missing:
                crashes = self._crashes[item.item]
                message = (
                    f"its worker died {crashes} times while running it"
                    if crashes
                    else "not run: the session was stopped early"
                    if early
                    else "no process has recorded it"
                )
                records[item.item] = record = Record(
                    item=item.item,
                    benchmark=item.benchmark,
                    example=item.example,
                    checkpoint=item.checkpoint,
                    status="lost",
                    group=item.group,
                    message=message,
                )
                journal.append(record)
            journal.sync()
        return records

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        from harness.reports.files import eval_section

        if self.summary is not None:
            json_report["eval"] = eval_section(self.summary)
            json_report["exitcode"] = int(json_report.get("exitcode", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if self.summary is None:
            if self.collection.nothing is not None and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                terminalreporter.write_line(self.collection.nothing)
            for one in self._unpublished:
                terminalreporter.write_line(one.line)
            return
        from harness.reports.terminal import render

        terminalreporter.section("benchmarks")
        width = terminalreporter._tw.fullwidth
        lines = render(self.summary, width, terminalreporter.hasmarkup).splitlines()
        lines = shown([*lines, *(one.line for one in self._unpublished)], os.environ)
        for line in (*lines, *commands(self.summary, os.environ)):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        if self._progress is not None:
            self._progress.stop()


class Quiet:
    """Keeps the progress line away while pytest writes; registered only where there is such a line, since
    these hooks run several times an item."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, object, object]:
        with self._progress.paused():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logfinish(self) -> Generator[None, object, object]:
        with self._progress.paused():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, object, object]:
        with self._progress.paused():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self) -> Generator[None, object, object]:
        with self._progress.paused():
            return (yield)


class Ending:
    """Counts down the items of each checkpoint of a run."""

    def __init__(
        self, directory: RunDirectory, items: Sequence[Collected], declarations: Mapping[str, Declaration]
    ) -> None:
        self.following = Following(directory.path)
        self._directory = directory
        self._declarations = declarations
        self._items: dict[str, list[Collected]] = {}
        self._left: dict[str, set[str]] = {}
        self._checkpoint_of: dict[str, str] = {}
        for item in items:
            self._items.setdefault(item.checkpoint, []).append(item)
            self._left.setdefault(item.checkpoint, set()).add(item.item)
            self._checkpoint_of[item.item] = item.checkpoint

    def take(self, item: str) -> str | None:
        """Notes that an item has been reported; the checkpoint whose last one it was, else None."""
        checkpoint = self._checkpoint_of.pop(item, None)
        if checkpoint is None:
            return None
        self._left[checkpoint].discard(item)
        return None if self._left[checkpoint] else checkpoint

    def results(
        self, checkpoint: str, manifest: dict[str, Any], seconds: float
    ) -> tuple[Summary, list[Record]]:
        """The numbers of one checkpoint, and the records that they come from; only what the journal has gained is read.

        Raises ``HarnessError`` where it cannot be read.
        """
        own = (record for record in self.following.read() if record.checkpoint == checkpoint)
        known = latest(own)
        rows = [row for row in manifest.get("checkpoints", ()) if row["name"] == checkpoint]
        summary = summarize(
            known.values(),
            self._declarations,
            self._items[checkpoint],
            run_id=self._directory.run_id,
            directory=str(self._directory.path),
            manifest=manifest,
            checkpoints=rows,
            seconds=seconds,
        )
        return summary, list(known.values())
