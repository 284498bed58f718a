"""``EvalSession``: the life cycle of a run in one process, from the first benchmark that is collected to its last
line.

It is made when the first benchmark is collected, when an ordinary test asks for our fixtures, or when xdist's workers
must be told of it. A worker has the same session, without the controller's part; what both need to know is in the
run's folder.
"""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.skipping import (
    xfailed_key,
)  # private: nothing public tells whether a mark expects an item to fail

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import Lasting
from pytest_touchstone.core import disk
from pytest_touchstone.core.benchmark import declared
from pytest_touchstone.core.errors import CheckpointError, HarnessError, JournalError, ServerError
from pytest_touchstone.core.files import keep_others_out
from pytest_touchstone.core.settings import OPTION
from pytest_touchstone.core.shard import shard_of
from pytest_touchstone.core.text import listed
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin import NO_CHECKPOINT, new_run_id, new_token
from pytest_touchstone.plugin import collection as collecting
from pytest_touchstone.plugin.batches import batch_size, most_items
from pytest_touchstone.plugin.controller import TOLD, Controller, FailedCheckpoints
from pytest_touchstone.plugin.declarations import (
    collected_of,
    declarations_of,
    wrong_composite,
)
from pytest_touchstone.plugin.gate import GateSession
from pytest_touchstone.plugin.interrupts import Interrupts
from pytest_touchstone.plugin.item_errors import SAME, one_line, place_of, whole_sentence
from pytest_touchstone.plugin.options import runs_nothing, settings_of
from pytest_touchstone.plugin.selection import settle
from pytest_touchstone.results.layout import DETAILS, ITEMS
from pytest_touchstone.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.engines.judging import RunJudge
    from pytest_touchstone.engines.registry import EnginePool
    from pytest_touchstone.plugin.controller import Controller
    from pytest_touchstone.plugin.execution import Execution
    from pytest_touchstone.plugin.gate import Sequential
    from pytest_touchstone.reports.dry_run import DryRun
    from pytest_touchstone.results.merging import ShardShare
    from pytest_touchstone.results.records import Status


class EvalSession:
    """A run in this process. ``fault`` is a line about a person's mistake, for which the run does not begin."""

    def __init__(self, config: pytest.Config, told: Mapping[str, Any]) -> None:
        """``told`` is what ``for_workers`` returns; it is empty for a session that begins by itself."""
        self.config = config
        self._umask = keep_others_out()
        self.worker = hasattr(config, "workerinput")
        self._told = told
        self.fault: str | None = told.get("fault")
        self._began = time.time()
        self._selected = False
        gc.unfreeze()  # for a former session of this process; at the end it would only cost a scan
        self._collector = gc.isenabled()
        if self.worker or config.getoption("dist", "no") == "no":
            gc.disable()  # nothing that is collected can become garbage before the end of the session
        self._pool: EnginePool | None = None
        self._judge: RunJudge | None = None
        self._sequential: Sequential | None = None
        self._execution: Execution | None = None
        self._dry_run: DryRun | None = None
        self._controller: Controller | None = None
        self._whole: list[pytest.Item] = []
        self._share: ShardShare | None = None
        self._failed = FailedCheckpoints()
        self._lasting = Lasting(self._say)
        self._lock: int | None = None
        self._interrupts = Interrupts(term=not self.worker)
        config.add_cleanup(self._interrupts.close)
        if self.fault is None:
            try:
                self._create()
            except (pytest.UsageError, CheckpointError) as error:
                self.fault = str(error)

    def _create(self) -> None:
        """Set up the run; raise ``pytest.UsageError`` or ``CheckpointError`` for a mistake in the options."""
        settings = self.settings = settings_of(self.config)
        self.shard = shard_of(settings.shard, {}) if settings.shard is not None else None
        self.directory = RunDirectory(self._run_path(), self._told.get("token") or new_token())
        self.collection = collecting.Collection(settings, lasting=self._lasting)
        self._lasting.logs = self.directory.path / DETAILS
        if self.worker:
            self.collection.take(self._told.get("checkpoints"))
            if settings.gate_sequential:
                self._open_gate()
            return
        if settings.run_id and self.directory.used():
            raise pytest.UsageError(self.directory.refusal)
        if settings.checkpoint:
            self.collection.known_checkpoints()
        if settings.judge is not None:
            self.collection.known_judge()
        gate = self._open_gate()
        if self.shard is not None:
            from pytest_touchstone.plugin.shards import refused

            if (why := refused(settings, gate.plan is not None)) is not None:
                raise pytest.UsageError(why)
        self._controller = Controller(
            self.config,
            settings=settings,
            directory=self.directory,
            collection=self.collection,
            gate=gate,
            failed=self._failed,
            began=self._began,
        )

    def _run_path(self) -> Path:
        if "run" in self._told:
            return Path(self._told["run"])
        output: Path = self.config.invocation_params.dir / self.settings.output
        end = f"_{self.shard.suffix}" if self.shard is not None else ""
        return output / f"{self.settings.run_id or new_run_id(self._began)}{end}"

    def _say(self, text: str) -> None:
        """Tell the person of something that takes long or has gone wrong, apart from the progress."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        if reporter is not None and self.config.get_verbosity() >= 0:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(text)

    def _open_gate(self) -> GateSession:
        gate = GateSession(self.config, self.settings, self.directory.path.parent)
        if self.settings.gate_sequential:
            from pytest_touchstone.plugin.gate import Sequential

            self._sequential = Sequential(self.settings.seed, gate.watch)
        return gate

    def for_workers(self) -> dict[str, Any]:
        """Return what xdist's workers are told: where to write, what to score, and the mistake, if there is one."""
        if self.fault is not None:
            return {"fault": self.fault, "run": ""}
        return {
            "run": str(self.directory.path),
            "token": self.directory.token,
            "checkpoints": self.collection.give(),
            "fault": None,
        }

    def give_checkpoints(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize an ordinary test that asks for a checkpoint, or its engine, by those of the run."""
        if self.fault is None and declared(metafunc.function) is None and self.settings.checkpoint:
            try:
                infos = self.collection.known_checkpoints()
            except CheckpointError as error:
                self.fault = str(error)
                return
            names = [info.name for info in infos]
            metafunc.parametrize("touchstone_checkpoint", infos, ids=names, scope="session")

    def raise_fault(self) -> None:
        """Raise ``pytest.UsageError`` for the mistake for which the run does not begin, if there is one."""
        if self.fault is not None:
            raise pytest.UsageError(self.fault)

    def select(self, items: list[pytest.Item], *, whole: bool) -> None:
        """Keep the items that can run, in the order in which they run; called when everybody else has chosen.

        ``whole`` says that every file could be collected.

        Raises ``pytest.UsageError`` for a mistake; a worker keeps no item, and its controller raises the mistake.
        """
        self._selected = True
        dropped = settle(items, self.collection, self.config, whole=whole) if self.fault is None else []
        if self.fault is None:
            count = len(self.collection.checkpoints or ())
            found = (
                collecting.wrong_fixture(items),
                wrong_composite(items),
                collecting.name_results(items, count),
            )
            self.fault = self.collection.fault or next((one for one in found if one is not None), None)
        if self.fault is not None:
            self._refuse(items)
            return
        if self.shard is not None:
            from pytest_touchstone.plugin.shards import take_share

            self._whole = list(items)
            self._share, others = take_share(items, self.shard, self.settings)
            dropped += others
        if not self.config.option.collectonly:
            dropped += collecting.drop_unsafe(items, self.collection)
            if self._sequential is not None:
                self._sequential.arrange(items)
        if dropped:
            self.config.hook.pytest_deselected(items=dropped)
        if self.settings.file is not None:
            from pytest_touchstone.plugin.selection import by_priority

            by_priority(items)
        if len(self.collection.checkpoints or ()) > 1:
            from pytest_touchstone.plugin.batches import interleave

            interleave(items, self._batch_size(len(items)), by_kind=self._by_kind)

    def _refuse(self, items: list[pytest.Item]) -> None:
        items.clear()
        if not self.worker:
            self.raise_fault()

    def _batch_size(self, count: int) -> int:
        return batch_size(count, self.settings.workers, most_items(self.collection))

    @property
    def _by_kind(self) -> bool:
        return not self.worker and self.settings.batch_items is None

    def collected_lines(self, *, all_of_them: bool) -> list[str]:
        """Return the benchmarks that --eval-tasks means; with ``all_of_them`` also what was left out, a line each."""
        if self.fault is not None:
            return []
        specs = self.collection.specs.values()
        names = [spec.name for spec in specs if self.collection.tasks.chosen(spec)]
        terms = ",".join(self.settings.tasks)
        by_file = self.settings.file is not None and self.settings.origins["tasks"] != OPTION
        who = f"--eval-config {self.settings.origins['tasks']}" if by_file else f"--eval-tasks {terms}"
        told = [f"{who}: {listed(names)} (of {len(specs)})"] if terms and names else []
        told += [self._share.line] if self._share is not None else []
        if all_of_them:
            told += [f"failed to load {one.name}: {one.message}" for one in self.collection.failed]
            told += [f"deselected {line}" for line in self.collection.deselected]
        return told

    def start(self, items: list[pytest.Item]) -> None:
        """Get ready to answer what was collected, in a process that answers."""
        if self._collector:
            gc.enable()
        own = [item for item in items if collecting.given_of(item) is not None]
        left_out = self.collection.selected and self.collection.deselected if self.fault is None else ()
        if runs_nothing(self.config) or not self._selected or not (own or left_out or self._whole):
            return
        if self.settings.dry_run:
            self._make_dry_run(own)
            return
        if self.settings.gate_plan:
            assert self._controller is not None
            self._controller.gate.make_plan(collected_of(own), declarations_of(own))
            return
        try:
            self.directory.make(logs_at_top=self.settings.file is not None)
            self._prepare(own)
        except (JournalError, OSError) as error:
            self.fault = self.directory.unwritten(error) if isinstance(error, OSError) else str(error)
            self._refuse(items)
            return
        if any(info.served for info in self.collection.checkpoints or ()):
            self._lock = disk.share_lock(self.directory.path / ITEMS)
        self._execution = self._prepared(own, self._batch_size(len(items)))
        if not self.config.getoption("setupshow", False):
            from pytest_touchstone.plugin.batches import give_arguments

            give_arguments(own)
        # Items live until the end of the session: scanning tens of thousands of them for garbage again and
        # again takes a fifth of the time that pytest needs for a trivial item.
        gc.freeze()

    @property
    def only_plans(self) -> bool:
        """Nothing is run: a plan or a dry run was asked for."""
        return self.fault is None and (self.settings.gate_plan or self.settings.dry_run)

    def _make_dry_run(self, items: list[pytest.Item]) -> None:
        """Find what a run would ask, to be shown at the end; raise ``pytest.UsageError`` where that cannot be."""
        from pytest_touchstone.plugin.dry_run import dry_run

        try:
            self._dry_run = dry_run(items, self.collection, self.settings, self.engine)
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None

    def _prepared(self, items: list[pytest.Item], size: int) -> Execution:
        from pytest_touchstone.plugin.execution import Execution, ProcessWork
        from pytest_touchstone.plugin.progress import ProgressWriter
        from pytest_touchstone.plugin.xdist import Quarantine
        from pytest_touchstone.results.journal import Journal
        from pytest_touchstone.results.reuse import InFlight, Reuse

        # Not from the environment: a run inside a worker's test inherits that.
        who = self.config.workerinput["workerid"] if self.worker else "main"  # type: ignore[attr-defined]
        return Execution(
            ProcessWork(
                items=items,
                size=size,
                in_order=not self.worker,
                by_kind=self._by_kind,
                journal=Journal(self.directory.path, who),
                quarantine=Quarantine(self.directory.quarantine),
                engine=self.engine,
                note_usage=functools.partial(self.directory.write_usage, who),
                sandbox=self.collection.sandbox,
                judge=self._opened_judge(),
                sequential=self._sequential,
                reuse=None if self.settings.no_cache else Reuse(self.directory.path),
                # xdist's controller finds out by itself what kills a worker; what replicas compute kills them alone.
                in_flight=None if self.worker or self.settings.engine else InFlight(self.directory.path, who),
                progress=ProgressWriter(self.directory.path, who, writes=self.config.get_verbosity() >= 0),
                settings=self.settings.model,
            )
        )

    def begin(self) -> None:
        """Write the manifest and start the progress line, once, where there is a benchmark."""
        if self._controller is not None and self.fault is None:
            with self._writable():
                self._controller.begin()

    def workers_collected(self) -> None:
        """Begin, when the first of xdist's workers has collected; its items come to the workers in batches."""
        if self._controller is not None and self.fault is None:
            with self._writable():
                self._controller.workers_collected()

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Make of a disk that refuses the run's own files one line, with which the run ends."""
        try:
            yield
        except (OSError, MemoryError) as error:
            raise pytest.UsageError(self.directory.unwritten(error)) from None

    def engine(self, info: CheckpointInfo) -> Engine:
        """Return the checkpoint, loaded once in this process.

        Its memory is freed at the end, or when a checkpoint is loaded that shares no model with it. Raises
        ``CheckpointError`` when its files do not make that model.
        """
        return self._opened().engine(info)

    def _opened(self) -> EnginePool:
        if self._pool is None:
            from pytest_touchstone.engines.replicas import open_pool
            from pytest_touchstone.engines.texts import open_with_vllm

            opened = None
            if any(one.asking.texts_by for one in self.collection.loaded.values()):
                how: dict[str, Any] = {"settings": self.settings.model, "run": self._lasting}
                opened = functools.partial(open_with_vllm, arguments=self.settings.server_args or "", **how)
            self._pool = open_pool(self.settings.model, opened)
        return self._pool

    def _opened_judge(self) -> RunJudge | None:
        """Return the judge, if there is one; it is asked in the way that its own chat template knows."""
        if self.collection.judge is None:
            return None
        from pytest_touchstone.engines.judging import RunJudge

        own = ModelSettings()
        plain = {
            name: getattr(own, name) for name in ("chat", "system", "think_end", "thinking", "max_new_tokens")
        }
        settings = replace(self.settings.model, **plain, engine=None)
        # Replicas hold the checkpoints elsewhere; closing them gives this process no memory.
        free = self._opened().free if self.settings.engine is None else list
        self._judge = RunJudge(self.collection.judge.info, settings, free, self.settings.judge_tokens)
        return self._judge

    def call(self, item: pytest.Function) -> bool:
        """Run a benchmark item in pytest's place; raise what it raises."""
        given = collecting.given_of(item)
        if self._execution is None or given is None:
            raise HarnessError(
                f"{item.nodeid} was not collected as a benchmark item; run it through pytest's own session"
            )
        ended = self._execution.call(item)
        primary = given.loaded.spec.letter_score(ended.scores)
        item.user_properties.extend(sorted(ended.scores.items()))
        if primary is not None:
            item.user_properties.append(("touchstone_primary", primary))
        if ended.raised is not None and (not ended.scores or item.stash.get(xfailed_key, None)):
            raise ended.raised
        return True

    def item_raised(self, item: pytest.Item, report: pytest.TestReport, error: BaseException) -> None:
        """Journal an item that never ran, and make an error of ours one line, in the process of the item."""
        own = collecting.given_of(item) is not None
        if isinstance(error, HarnessError):  # written for people: a traceback would hide it
            report.longrepr = one_line(error, item) if own else f"{type(error).__name__}: {error}"
        if own:
            function, _, _ = item.nodeid.partition("[")
            kind = f"{function} {type(error).__name__} {place_of(error, self.config.rootpath)}"
            setattr(report, SAME, kind)
        if isinstance(error, ServerError):
            setattr(report, TOLD, {"stop": str(error)})
        elif isinstance(error, JournalError):  # of any other item nothing could be kept either
            setattr(report, TOLD, {"fatal": str(error)})
        elif self._execution is not None and report.when != "teardown" and not report.passed:
            expected = hasattr(report, "wasxfail")
            status: Status = "xfailed" if expected else "skipped" if report.skipped else "error"
            marked = expected and not isinstance(error, pytest.xfail.Exception)
            try:
                self._execution.settle(item, status, whole_sentence(error), anew=marked)
            except JournalError as fault:
                setattr(report, TOLD, {"fatal": str(fault)})
        if isinstance(error, CheckpointError) and own:
            several = len(self.collection.known_checkpoints()) > 1
            self._failed.tell(report, collecting.checkpoint_of(item).name, str(error), several=several)

    def item_reported(self, report: pytest.TestReport) -> None:
        """Take note of an item in the controlling process; raises ``pytest.UsageError`` for what ends the run."""
        if self._controller is not None:
            self._controller.item_reported(report)

    def worker_crashed(self, item: str) -> bool:
        """Take note of a worker that died in an item; return whether the item runs once more."""
        return self._controller is not None and self._controller.worker_crashed(item)

    def ask_again(self, session: pytest.Session) -> None:
        """Run the items once more whose texts a reasoning makes doubtful, in the process of the run that is the last to
        end, unless it was stopped; pytest gets the reports of those that fail. Raises ``pytest.UsageError`` where the
        journal cannot be read or written."""
        execution, stopped = self._execution, session.shouldstop or session.shouldfail
        if execution is None or stopped or self._lock is None or not disk.lock_alone(self._lock):
            return
        try:
            for items in execution.asked_again(self.directory):
                for item, following in zip(items, [*items[1:], None], strict=True):
                    for report in runtestprotocol(item, log=False, nextitem=following):
                        if report.failed:
                            item.ihook.pytest_runtest_logreport(report=report)
        except JournalError as error:
            raise pytest.UsageError(str(error)) from None

    def check(self) -> None:
        """Let the engine check, after the last item, that it answers as at the beginning."""
        if self._execution is not None:
            self._execution.check()

    def sync(self) -> None:
        """Make sure that this process's records are on disk; raises ``pytest.UsageError`` where that cannot be."""
        if self._execution is not None:
            try:
                with self._writable():
                    self._execution.sync()
            except JournalError as error:
                raise pytest.UsageError(str(error)) from None

    def for_controller(self) -> dict[str, Any]:
        """Return what a worker that ends tells its controller, which collects nothing itself."""
        nothing = None if self.fault else self.collection.nothing
        unasked = [] if self.fault else self.collection.unasked
        return {"nothing": nothing, "fault": self.fault, "damaged": self._damaged(), "unasked": unasked}

    def _prepare(self, own: list[pytest.Item]) -> None:
        """Write what the other processes of the run, and its end, need to know."""
        declarations = declarations_of(self._whole or own)  # all shards have all of them
        if self._share is not None:
            from pytest_touchstone.results.merging import write_share

            write_share(self.directory.path, self._share)
        self.directory.write_collected(collected_of(own), declarations, self.collection.deselected)
        if self._sequential is not None:
            self._sequential.begin(self.directory, declarations)

    def _damaged(self) -> list[str]:
        return [] if self._execution is None else self._execution.damaged

    def worker_ended(self, told: dict[str, Any]) -> None:
        """Take what a worker has told; raises ``pytest.UsageError`` for a mistake that it has found."""
        self.fault = self.fault or told["fault"]
        if self._controller is not None:
            self._controller.tell_damaged(told["damaged"])
        self.raise_fault()
        self.collection.nothing = self.collection.nothing or told["nothing"]
        self.collection.unasked += told["unasked"]

    def ends(self) -> None:
        """From now on nothing is asked any more: Ctrl-C ends the reporting alone."""
        self._interrupts.arm()

    def finish(self, session: pytest.Session) -> None:
        """Check every collected item against the journal, summarize, judge, and report; set the exit code."""
        self.ends()
        self._end_progress()
        # After a usage error there is nothing to summarize: the one line that says what is wrong stands
        # alone.
        if self.fault is not None or session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        if self._controller is not None:
            self._controller.tell_damaged(self._damaged())
        if (controller := self._controller) is not None and not self._interrupts.finished(
            lambda: controller.finish(session)
        ):
            session.exitstatus = pytest.ExitCode.INTERRUPTED
            controller.unwritten()

    def _end_progress(self) -> None:
        """End what this process tells of its progress, and the line; calling it again does nothing."""
        if self._execution is not None:
            self._execution.close()
        if self._controller is not None:
            self._controller.end_progress()

    def show(self, reporter: pytest.TerminalReporter, status: int) -> None:
        """Write the table of results, and the sections of others, on the terminal."""
        if self._dry_run is not None:
            from pytest_touchstone.reports.dry_run import render

            width = reporter.config.get_terminal_writer().fullwidth
            reporter.write_sep("=", "dry run")
            reporter.write_line(render(self._dry_run, width=width, color=reporter.hasmarkup))
        if self.fault is None and (names := dict.fromkeys(self.collection.unasked)):
            reporter.write_line(f"skipped {listed(names)}: {NO_CHECKPOINT}")
        if self.fault is None and self._controller is not None:
            self._controller.show(reporter, status)

    def say_last_lines(self, session: pytest.Session) -> None:
        """Write what must not be overlooked below pytest's own last line; after a usage error nothing is left."""
        if self._controller is not None:
            self.directory.discard()  # where nothing was begun; workers have ended by now
        if self.fault is not None or session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        if self._controller is not None:
            self._controller.say_last_lines(session.exitstatus)

    def tell_failure(self, code: int, message: str) -> None:
        """Tell jobs of continuous integration of a run that ends without results."""
        if self.worker or (self._controller is not None and self._controller.reported):
            return
        from pytest_touchstone.plugin.reporters import tell_failure

        settings = getattr(self, "settings", None)  # none where they are the mistake
        markdown = settings.markdown if settings is not None else self.config.option.eval_markdown
        target = self.config.invocation_params.dir / markdown if markdown else None
        tell_failure(target, code, message or "no results were written; the log says why")

    def close(self) -> None:
        """End what is still running, and free memory."""
        self._end_progress()
        if self._judge is not None:
            self._judge.close()
        if self._pool is not None:
            self._pool.close()
        if self.fault is None:
            self.collection.close()
        if self._lasting.logs is not None and not self.directory.is_claimed():
            self._lasting.logs = None
        self._lasting.close()
        if self._lock is not None:
            disk.close(self._lock)
        os.umask(self._umask)
        if self._collector:
            gc.enable()
