"""``EvalSession``: a run in one process, from the first benchmark that is collected to its last line.

It is made when the first benchmark is collected, when an ordinary test asks for our fixtures, or when xdist's workers
must be told of it, and is itself the plugin with pytest's hooks. What its processes need to know of each other is in
the run's folder. The process that a person has started has a ``controller.Controller``.
"""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from _pytest.runner import runtestprotocol
from _pytest.skipping import (
    xfailed_key,
)  # private: nothing public tells whether a mark expects an item to fail

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import CheckpointResources
from pytest_touchstone.core import disk
from pytest_touchstone.core.benchmark import declaration_of
from pytest_touchstone.core.errors import (
    BenchmarkError,
    CheckpointError,
    HarnessError,
    JournalError,
    SandboxError,
    ServerError,
    WireError,
)
from pytest_touchstone.core.files import restrict_umask
from pytest_touchstone.core.requests import RunProgram, make_serializable
from pytest_touchstone.engines.replicas import open_pool, open_programs
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin import new_run_id, new_token
from pytest_touchstone.plugin.answered import select_answered
from pytest_touchstone.plugin.batches import batch_size, most_items
from pytest_touchstone.plugin.collection import (
    OWN_NAMES,
    Collection,
    collected_example,
    parametrize_benchmark,
)
from pytest_touchstone.plugin.gate import GateSession, InterimGate, gate_plan
from pytest_touchstone.plugin.item_errors import SAME, forbid_exit, one_line, place_of, whole_sentence
from pytest_touchstone.plugin.options import runs_nothing, settings_of
from pytest_touchstone.plugin.plain_stream import mask_keys
from pytest_touchstone.plugin.planned import (
    check_composites,
    collected_items,
    declarations_of,
    plan_items,
    planned_items,
    planned_of,
)
from pytest_touchstone.plugin.selection import finish_selection, sort_by_priority
from pytest_touchstone.results import DETAILS, ITEMS
from pytest_touchstone.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.engines.judging import RunJudge
    from pytest_touchstone.engines.registry import EnginePool
    from pytest_touchstone.plugin.execution import Execution
    from pytest_touchstone.results.merging import ShardShare
    from pytest_touchstone.results.records import Status

TOLD: Final = "touchstone"
"""The attribute of a report in which a worker tells its controller something, since only reports are sure to
arrive."""


class EvalSession:
    """A run in this process. ``fault`` is a line about a user's mistake, which prevents the run."""

    worker = False

    def __init__(self, config: pytest.Config, worker_input: Mapping[str, Any]) -> None:
        """``worker_input`` is what ``Controller.for_workers`` returns; empty in the controller."""
        self.config = config
        self._umask = restrict_umask()
        self._told = worker_input
        self.fault: str | None = worker_input.get("fault")
        self._began = time.time()
        self._selected = False
        gc.unfreeze()  # for a former session of this process; at the end it would only cost a scan
        self._collector = gc.isenabled()
        if self.worker or config.getoption("dist", "no") == "no":
            gc.disable()  # nothing that is collected can become garbage before the end of the session
        self._judge: RunJudge | None = None
        self._sequential: InterimGate | None = None
        self._execution: Execution | None = None
        self._whole: list[pytest.Item] = []
        self._share: ShardShare | None = None
        self._messages: dict[str, str] = {}  # of checkpoints that failed to load
        self._lasting = CheckpointResources(self._say)
        self._lock: int | None = None
        if self.fault is None:
            try:
                self._create()
            except (pytest.UsageError, HarnessError) as error:
                self.fault = str(error)

    def _create(self) -> None:
        """Set up the run; raise ``pytest.UsageError`` or an error of ours for a mistake in the options."""
        settings = self.settings = settings_of(self.config)
        path = Path(self._told.get("run", ""))
        if "run" not in self._told:
            ending = f"_{settings.shard.replace('/', 'of')}" if settings.shard is not None else ""
            run_id = f"{settings.run_id or new_run_id(self._began)}{ending}"
            path = self.config.invocation_params.dir / settings.output / run_id
        self.directory = RunDirectory(path, self._told.get("token") or new_token())
        self._gate_plan = plan = gate_plan(self.config, settings)
        baseline = None if plan is None else self.config.invocation_params.dir / plan.baseline
        self.collection = Collection(settings, lasting=self._lasting, baseline=baseline)
        self._lasting.logs = self.directory.path / DETAILS

    def _say(self, text: str) -> None:
        """Tell the person of something that takes long or has gone wrong, apart from the progress."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        if reporter is not None and self.config.get_verbosity() >= 0:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(text)

    def _open_gate(self) -> GateSession:
        gate = GateSession(self.config, self._gate_plan, self.directory.path.parent)
        if self.settings.gate_sequential:
            self._sequential = InterimGate(self.settings.seed, gate)
        return gate

    def give_checkpoints(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize an ordinary test that asks for a checkpoint, or its engine, by those of the run."""
        if self.fault is None and declaration_of(metafunc.function) is None and self.settings.checkpoint:
            try:
                infos = self.collection.known_checkpoints()
            except CheckpointError as error:
                self.fault = str(error)
                return
            metafunc.parametrize(
                "touchstone_checkpoint", infos, ids=[info.name for info in infos], scope="session"
            )

    def raise_fault(self) -> None:
        """Raise ``pytest.UsageError`` for the mistake for which the run does not begin, if there is one."""
        if self.fault is not None:
            raise pytest.UsageError(self.fault)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Turn one of our errors, or a full disk, into one line with which the run ends."""
        try:
            yield
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None
        except (OSError, MemoryError) as error:
            raise pytest.UsageError(self.directory.unwritten(error)) from None

    # Collection

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None, object, object]:
        """Parametrize by checkpoints first and examples last: other parameters stand between them, in node ids
        too."""
        spec = declaration_of(metafunc.function)
        if spec is None or self.fault is not None:
            return (yield)
        finish = parametrize_benchmark(metafunc, spec, self.collection)
        result = yield
        finish()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep the items that can run, in running order, after every other plugin has selected.

        This includes ``--lf``.
        """
        result = yield
        self._selected = True
        try:
            if self.fault is None:
                self._select(items, whole=not session.testsfailed)
        except (BenchmarkError, pytest.UsageError) as error:
            self.fault = str(error)
        if self.fault is not None:
            self._refuse(items)
        return result

    def _select(self, items: list[pytest.Item], *, whole: bool) -> None:
        """``whole`` says that every file could be collected. Raises ``pytest.UsageError`` and ``BenchmarkError`` for a
        person's mistake."""
        dropped = finish_selection(items, self.collection, self.config, whole=whole)
        plan_items(items, several=len(self.collection.checkpoints or ()) > 1)
        check_composites(items)
        dropped += select_answered(items)
        if self.settings.shard is not None:
            from pytest_touchstone.plugin.shards import select_shard

            self._whole = list(items)
            self._share, others = select_shard(items, self.settings)
            dropped += others
        if not self.config.option.collectonly:
            dropped += self._without_sandbox(items)
            if self._sequential is not None:
                self._sequential.arrange(items)
        if dropped:
            self.config.hook.pytest_deselected(items=dropped)
        if self.settings.file is not None:
            sort_by_priority(items)

    def _without_sandbox(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Open the sandbox if any item runs programs.

        Where that cannot be done safely, take those items out, note why, and return them.
        """
        names = {
            planned.item: planned.spec.name
            for planned in planned_items(items)
            if RunProgram in planned.spec.asks
        }
        if not names:
            return []
        try:
            self.collection.sandbox = open_programs(
                self.settings.sandbox_settings, self.settings.model, self._say
            )
        except SandboxError as error:
            if all(
                planned.answers for planned in planned_items(items)
            ):  # of a file of programs nothing is left
                raise pytest.UsageError(str(error)) from None
            self.collection.deselected.append(f"{', '.join(dict.fromkeys(names.values()))}: {error}")
            items[:] = [item for item in items if item not in names]
            return list(names)
        return []

    def _refuse(self, items: list[pytest.Item]) -> None:
        """End the run before it begins; a worker keeps no item, and its controller raises the mistake."""
        items.clear()
        if not self.worker:
            self.raise_fault()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Get ready to answer what was collected, in a process that answers."""
        items = session.items
        if self._collector:
            gc.enable()
        planned = planned_items(items)
        left_out = self.collection.selected and self.collection.deselected if self.fault is None else ()
        if runs_nothing(self.config) or not self._selected or not (planned or left_out or self._whole):
            return
        if self.only_plans:
            with self._ending():
                self._make_plans(items)
            return
        try:
            self.directory.make(logs_at_top=self.settings.file is not None)
            self._prepare(items)
        except (JournalError, OSError) as error:
            self.fault = self.directory.unwritten(error) if isinstance(error, OSError) else str(error)
            self._refuse(items)
            return
        if any(info.served for info in self.collection.checkpoints or ()):
            self._lock = disk.share_lock(self.directory.path / ITEMS)
        from pytest_touchstone.plugin.execution import MAIN, Backends, Execution, ProgressWriter

        # Not from the environment: a run inside a worker's test inherits that.
        who = self.config.workerinput["workerid"] if self.worker else MAIN  # type: ignore[attr-defined]
        self._execution = Execution(
            planned,
            batch_size(len(items), self.settings.workers, most_items(self.collection)),
            who=who,
            by_kind=not self.worker and self.settings.batch_items is None,
            settings=self.settings,
            directory=self.directory,
            backends=Backends(self.engine, self.collection.sandbox, self._opened_judge()),
            sequential=self._sequential,
            progress=ProgressWriter(self.directory.path, who),
        )
        if not self.config.getoption("setupshow", False):
            # pytest makes a fixture of each argument that an item lacks, at the cost of a tenth of a trivial item.
            # Fixtures that ask for one of these get it from pytest, as ever.
            for benchmark_item in planned:
                params = benchmark_item.item.callspec.params
                benchmark_item.item.funcargs.update(
                    {name: params[name] for name in params.keys() & OWN_NAMES}
                )
        # Items live until the end of the session: scanning tens of thousands of them for garbage again and
        # again takes a fifth of the time that pytest needs for a trivial item.
        gc.freeze()

    @property
    def only_plans(self) -> bool:
        """Nothing is run: a plan or a dry run was asked for."""
        return self.fault is None and self.settings.dry_run

    def _make_plans(self, items: list[pytest.Item]) -> None:
        """Compute what a run would ask, or its gate decide, if only that is to be shown."""

    def _prepare(self, items: list[pytest.Item]) -> None:
        """Write what the other processes of the run, and its end, need to know."""
        declarations = declarations_of(self._whole or items)  # all shards have all of them
        if self._share is not None:
            from pytest_touchstone.results.merging import write_share

            write_share(self.directory.path, self._share)
        self.directory.write_collected(collected_items(items), declarations, self.collection.deselected)
        if self._sequential is not None:
            self._sequential.begin(self.directory, declarations)

    # Answering

    def engine(self, info: CheckpointInfo) -> Engine:
        """Return the checkpoint, loaded once in this process.

        Its memory is freed at the end, or when a checkpoint is loaded that shares no model with it. Raises
        ``CheckpointError`` when its files do not make that model.
        """
        return self._pool.engine(info)

    @functools.cached_property
    def _pool(self) -> EnginePool:
        if not any(loaded.asking.texts_by for loaded in self.collection.loaded.values()):
            return open_pool(self.settings.model)
        from pytest_touchstone.engines.registry import VllmTextsPool

        return VllmTextsPool(self.settings.model, self.settings.server_args or "", self._lasting)

    def _opened_judge(self) -> RunJudge | None:
        """Return the judge, if there is one; it is asked through its own chat template."""
        if self.collection.judge is None:
            return None
        from pytest_touchstone.engines.judging import RunJudge

        option_names = ("chat", "system", "think_end", "thinking", "max_new_tokens")
        defaults = {name: getattr(ModelSettings(), name) for name in option_names}
        settings = replace(self.settings.model, **defaults, engine=None)
        # Replicas hold the checkpoints elsewhere; closing them gives this process no memory.
        free = self._pool.free if self.settings.engine is None else list
        self._judge = RunJudge(self.collection.judge.info, settings, free, self.settings.judge_tokens)
        return self._judge

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run a benchmark item in pytest's place; raise what it raises."""
        if collected_example(pyfuncitem) is None:
            return None
        planned = planned_of(pyfuncitem)
        if self._execution is None or planned is None:
            raise HarnessError(
                f"{pyfuncitem.nodeid} was not collected as a benchmark item; run it through pytest's own session"
            )
        with forbid_exit():
            outcome = self._execution.call(planned)
        scores = outcome.record.scores
        pyfuncitem.user_properties.extend(sorted(scores.items()))
        if (primary := planned.spec.letter_score(scores)) is not None:
            pyfuncitem.user_properties.append(("touchstone_primary", primary))
        if outcome.raised is not None and (not scores or pyfuncitem.stash.get(xfailed_key, None)):
            raise outcome.raised
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        is_benchmark = collected_example(item) is not None
        if call.excinfo is not None:
            self._item_raised(item, report, call.excinfo.value, is_benchmark=is_benchmark)
        if is_benchmark:
            mask_keys(report)
        return report

    def _item_raised(
        self, item: pytest.Item, report: pytest.TestReport, error: BaseException, *, is_benchmark: bool
    ) -> None:
        """Journal an item that never ran, and show one of our errors as one line."""
        if isinstance(error, HarnessError):  # written for people: a traceback would hide it
            report.longrepr = one_line(error, item) if is_benchmark else f"{type(error).__name__}: {error}"
        if is_benchmark:
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
        if isinstance(error, CheckpointError) and (planned := planned_of(item)) is not None:
            self._failed_to_load(report, planned.info.name, str(error))

    def _failed_to_load(self, report: pytest.TestReport, checkpoint: str, message: str) -> None:
        """Attach the failed loading of a checkpoint to the report of an item.

        A single checkpoint ends the run, in one line. Of several, the others go on. Every item of one that failed is an
        error in the journal. pytest shows the first of them as an error and the others as skipped, because the same
        line four hundred times is of no use. If none can be loaded the run ends as with a single one.
        """
        if len(self.collection.known_checkpoints()) <= 1:
            setattr(report, TOLD, {"fatal": message})
        elif checkpoint not in self._messages:
            self._messages[checkpoint] = message
            setattr(report, TOLD, {"failed": [checkpoint, message]})
        else:
            path, line, _ = report.location
            report.outcome = "skipped"
            report.longrepr = (path, line or 0, f"Skipped: {checkpoint} failed to load, as said before")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Check after the last item that the engine still answers equally and that records are on disk.

        Raises ``pytest.UsageError`` if that is impossible.

        The last process to end runs those items once more whose texts a reasoning makes doubtful, unless the run was
        stopped; pytest gets the reports of those that fail.
        """
        if (execution := self._execution) is None:
            return (yield)
        try:
            result = yield
            with self._ending():
                is_stopped = session.shouldstop or session.shouldfail
                is_last = self._lock is not None and not is_stopped and disk.lock_alone(self._lock)
                for items in execution.items_to_repeat() if is_last else ():
                    for item, following in zip(items, [*items[1:], None], strict=True):
                        for report in runtestprotocol(item, log=False, nextitem=following):
                            if report.failed:
                                item.ihook.pytest_runtest_logreport(report=report)
            execution.check()
            return result
        finally:
            with self._ending():
                execution.flush()

    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str] | None:
        if getattr(report, "when", None) != "call" or not report.passed or hasattr(report, "wasxfail"):
            return None
        primary = dict(getattr(report, "user_properties", ())).get("touchstone_primary")
        if primary is None:
            return None
        from pytest_touchstone.reports.progress import item_status

        return "passed", *item_status(float(primary))

    # The end

    @property
    def damaged(self) -> list[str]:
        """The records of earlier runs that this process did not believe."""
        return [] if self._execution is None else self._execution.damaged

    def _end_progress(self) -> None:
        """End what this process tells of its progress; calling it again does nothing."""
        if self._execution is not None:
            self._execution.close()

    def pytest_unconfigure(self) -> None:
        """End what is still running, and free memory."""
        self._end_progress()
        if self._judge is not None:
            self._judge.close()
        if "_pool" in vars(self):
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


class WorkerSession(EvalSession):
    """A run in a worker of xdist, which answers items and collects them."""

    worker = True

    def _create(self) -> None:
        super()._create()
        self.collection.take(self._told.get("checkpoints"))
        if self.settings.gate_sequential:
            self._open_gate()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Tell the controller, which collects nothing itself."""
        has_collection = self.fault is None
        self.config.workeroutput["touchstone"] = {  # type: ignore[attr-defined]
            "nothing": self.collection.nothing if has_collection else None,
            "fault": self.fault,
            "damaged": self.damaged,
            "unasked": self.collection.unasked if has_collection else [],
        }

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        data = yield
        if data is None:
            return data
        try:
            scrubbed: dict[str, Any] = make_serializable(data)
        except WireError as error:
            # execnet would die of it, and with it this worker, and the item would be lost without a word
            scrubbed = make_serializable(data, replace=True)
            scrubbed["outcome"] = "failed"
            scrubbed["longrepr"] = f"{type(error).__name__}: {error}"
        return scrubbed
