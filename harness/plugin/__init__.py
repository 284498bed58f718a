"""The pytest plugin: thin hooks, each of which calls one function of another module.

PYTEST_DONT_REWRITE: there is no assert in here to rewrite, and start-up counts.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import time
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.compare.sequential import LookSchedule, Series
from harness.core.benchmark import declared
from harness.core.errors import CheckpointError, HarnessError, JournalError, WireError
from harness.core.resources import load_shipped_module
from harness.core.serialize import FATAL, scrub
from harness.plugin import collection as collecting
from harness.plugin.broken_checkpoints import Unloadable
from harness.plugin.gate import GateSession
from harness.plugin.options import (
    MODEL_SETTINGS,
    Settings,
    is_worker,
    settings_of,
    take_former_gate_mode,
)
from harness.plugin.ordering import breaks_of, draw_schedules, schedules_from_json, schedules_json
from harness.plugin.selection import settle
from harness.results.run_directory import RunDirectory, free_run_path

if TYPE_CHECKING:
    from harness.plugin.execution import Execution

RUN: Final = pytest.StashKey["Run"]()


class Run:
    """This process's part of a run: what was collected and what is being executed."""

    def __init__(self, settings: Settings, directory: RunDirectory) -> None:
        self.settings = settings
        self.directory = directory
        self.collection = collecting.Collection(settings)
        self.execution: Execution | None = None
        self.gating: GateSession | None = None
        self.courses: dict[Series, LookSchedule] = {}
        self.unloadable = Unloadable()
        self.selected = False
        """Whether pytest has got through with selecting, which it does not with a wrong ``-k``."""


TABLE: Final = Path(__file__).parents[1] / "core" / "settings.toml"
ACTIONS: Final = {"value": "store", "append": "append", "switch": "store_true"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Registers the options of the table; argparse takes every value as text. A short name that is taken already
    stays with who has it."""
    group = parser.getgroup("touchstone", "benchmarks of language models")
    groups = (parser._anonymous, *parser._groups)
    taken = {name for group in groups for option in group.options for name in option.names()}
    sections = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for name, row in ((name, row) for rows in sections.values() for name, row in rows.items()):
        if not row.get("option", True):
            continue
        action = ACTIONS[row.get("action", "value")]
        kind: dict[str, Any] = {"action": action, "default": None}
        if action != "store_true":
            kind["metavar"] = row["metavar"]
        flags = [f"--eval-{name.replace('_', '-')}"]
        flags += [short for short in (row.get("short"),) if short and short not in taken]
        group.addoption(*flags, dest=f"eval_{name}", help=" ".join(row["help"].split()), **kind)
        for old in (old for old in row.get("formerly", ()) if old not in taken):
            word = old.partition("=")[2]
            former = {"action": "store_const", "const": word} if word else kind
            group.addoption(old, dest=old, help=argparse.SUPPRESS, **{**former, "default": None})


def pytest_configure(config: pytest.Config) -> None:
    gc.unfreeze()  # what an earlier run in this process has left; see pytest_collection_finish
    take_former_gate_mode(config)
    settings = settings_of(config)
    config.stash[MODEL_SETTINGS] = settings.model
    directory = RunDirectory(_run_path(config, settings))
    if settings.run_id and not is_worker(config) and directory.used():
        raise pytest.UsageError(
            f"--eval-run-id {settings.run_id}: {directory.path} holds an earlier run; choose another id or remove it"
        )
    run = Run(settings, directory)
    config.stash[RUN] = run
    if settings.gate_sequential:
        run.gating = GateSession(config, settings, directory.path.parent)
    if is_worker(config):
        run.collection.take(config.workerinput.get("touchstone_checkpoints"))  # type: ignore[attr-defined]
    elif settings.checkpoint:
        try:
            run.collection.known_checkpoints()
        except CheckpointError as error:
            raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(load_shipped_module("checkpoints"), "touchstone-checkpoints")
    if not is_worker(config):
        from harness.plugin.session import Controller

        config.pluginmanager.register(
            Controller(config, settings, directory, run.collection), "touchstone-controller"
        )


def _run_path(config: pytest.Config, settings: Settings) -> Path:
    if is_worker(config):
        return Path(config.workerinput["touchstone_run"])  # type: ignore[attr-defined]
    output = config.invocation_params.dir / settings.output
    return output / settings.run_id if settings.run_id else free_run_path(output, time.time(), os.getpid())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Checkpoints first and examples last: the parameters of others stand between them, in node ids too."""
    if declared(metafunc.function) is None:
        return (yield)
    finish = collecting.generate(metafunc, metafunc.config.stash[RUN].collection)
    found = yield
    finish()
    return found


class Selecting:
    """Registered so late that its hook sees what every other plugin has left of the items, --lf's included."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        found = yield
        config.stash[RUN].selected = True
        _select(config, items)
        return found


def _select(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    dropped = settle(items, run.collection, config)
    found = (
        run.collection.fault,
        collecting.wrong_fixture(items),
        collecting.wrong_composite(items),
        collecting.name_results(items, len(run.collection.checkpoints or ())),
    )
    fault = run.collection.fault = next((one for one in found if one is not None), None)
    if fault is not None:
        if not is_worker(config):
            raise pytest.UsageError(fault)
        items.clear()  # the controller reads the fault and ends the run; see pytest_xdist_node_collection_finished
        if _make_directory(run, config):
            run.directory.write_fault(fault)
    if not config.option.collectonly:
        dropped += collecting.drop_unsafe(items, run.collection)
        if run.gating is not None:
            run.courses = draw_schedules(items, run.settings.seed)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    if len(run.collection.checkpoints or ()) > 1:
        from harness.plugin.ordering import interleave

        interleave(
            items, _unit_size(run, len(items)), by_kind=_by_kind(config, run), breaks=breaks_of(run.courses)
        )


def _make_directory(run: Run, config: pytest.Config) -> bool:
    """Makes the run's folder; where that cannot be done a worker leaves that to the controller to say, and gives
    False."""
    try:
        run.directory.make()
    except JournalError as error:
        if not is_worker(config):
            raise pytest.UsageError(str(error)) from None
        run.collection.fault = str(error)
    return run.collection.fault is None or run.directory.exists()


def _unit_size(run: Run, count: int) -> int:
    from harness.plugin.units import DEFAULT_SIZE, batch_size

    return batch_size(count, run.settings.workers, run.settings.batch_items or DEFAULT_SIZE)


def _by_kind(config: pytest.Config, run: Run) -> bool:
    return not is_worker(config) and run.settings.batch_items is None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Nothing that is collected can be garbage before the end of the session."""
    session.config.pluginmanager.register(Selecting())
    enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if enabled:
            gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    items = [item for item in session.items if collecting.given_of(item) is not None]
    left_out = run.collection.selected and run.collection.deselected
    stopped = session.config.option.collectonly or run.collection.fault is not None or not run.selected
    if stopped or not (items or left_out):
        return
    from harness.plugin.execution import Execution
    from harness.plugin.xdist import Quarantine
    from harness.results.journal import Journal
    from harness.results.reuse import Reuse

    if not _make_directory(run, session.config):
        session.items.clear()
        return
    declared_here = collecting.declarations_of(items)
    run.directory.write_collected(collecting.collected_of(items), declared_here, run.collection.deselected)
    watch = None
    if run.gating is not None:
        run.directory.write_courses(schedules_json(run.courses))
        watch = run.gating.watch(run.directory, run.courses, declared_here)
    # Not from the environment: a run inside of a worker's test inherits that.
    who = session.config.workerinput["workerid"] if is_worker(session.config) else "main"  # type: ignore[attr-defined]
    run.execution = Execution(
        items,
        _unit_size(run, len(session.items)),
        Journal(run.directory.path, who),
        Quarantine(run.directory.quarantine),
        in_order=who == "main",
        sandbox=run.collection.sandbox,
        by_kind=_by_kind(session.config, run),
        note_effort=functools.partial(run.directory.write_effort, who),
        breaks=breaks_of(run.courses),
        settled=None if watch is None else watch.settled,
        reuse=None if run.settings.no_cache else Reuse(run.directory.path),
    )
    # Items live until the end of the session: looking at tens of thousands of them again and again for
    # garbage takes a fifth of the time that pytest needs for a trivial item.
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is None:
        return
    if run.execution is not None:
        run.execution.close()
    run.collection.close()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_worker(session.config):  # the controller collects nothing itself
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]
        collection = session.config.stash[RUN].collection
        output["touchstone"] = {"nothing": collection.nothing, "fault": collection.fault}


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        run = session.config.stash[RUN]
        if run.execution is not None:
            try:
                run.execution.sync()
            except JournalError as error:
                raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> Any:
    if config.getoption("dist") in ("no", "each"):
        return None
    from xdist.workermanage import parse_tx_spec_config

    from harness.plugin.units import DEFAULT_SIZE
    from harness.plugin.xdist import BatchScheduler, Quarantine

    run = config.stash[RUN]
    return BatchScheduler(
        config,
        len(parse_tx_spec_config(config)),
        run.settings.batch_items or DEFAULT_SIZE,
        Quarantine(run.directory.quarantine),
        breaks=lambda: breaks_of(schedules_from_json(run.directory.read_courses())),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    given = collecting.given_of(pyfuncitem)
    if given is None:
        return None
    run = pyfuncitem.config.stash[RUN]
    if run.execution is None:
        raise HarnessError(
            f"{pyfuncitem.nodeid} was not collected as a benchmark item; run it through pytest's own session"
        )
    outcome = run.execution.call(pyfuncitem)
    primary = given.loaded.spec.letter_score(outcome.record.scores)
    pyfuncitem.user_properties.extend(sorted(outcome.record.scores.items()))
    if primary is not None:
        pyfuncitem.user_properties.append(("touchstone_primary", primary))
    if outcome.raised is not None:
        raise outcome.raised
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, HarnessError):
        report.longrepr = f"{type(error).__name__}: {error}"  # written for people: a traceback would hide it
    run = item.config.stash[RUN]
    if run.execution is not None and call.when != "teardown" and not report.passed:
        try:
            run.execution.settle(item, "skipped" if report.skipped else "error", str(error))
        except JournalError as fault:
            setattr(report, FATAL, str(fault))
    if isinstance(error, CheckpointError) and collecting.given_of(item) is not None:
        several = len(run.collection.known_checkpoints()) > 1
        run.unloadable.mark(report, collecting.checkpoint_of(item).name, str(error), several=several)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(
    config: pytest.Config,
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    data = yield
    if data is None or not is_worker(config):
        return data
    try:
        scrubbed: dict[str, Any] = scrub(data)
    except WireError as error:
        # execnet would die of it, and with it this worker, and the item would be lost without a word
        scrubbed = scrub(data, replace=True)
        scrubbed["outcome"] = "failed"
        scrubbed["longrepr"] = f"{type(error).__name__}: {error}"
    return scrubbed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for note in config.stash[RUN].settings.notes:
        terminalreporter.write_line(note, yellow=True)


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    if getattr(report, "when", None) != "call" or not report.passed or hasattr(report, "wasxfail"):
        return None
    primary = dict(getattr(report, "user_properties", ())).get("touchstone_primary")
    if primary is None:
        return None
    from harness.reports.progress import item_status

    letter, word = item_status(float(primary))
    return "passed", letter, word
