"""pytest's hooks in a process that has a run.

Each of them calls the session; they are registered when the session is made.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import pytest

from pytest_touchstone.core.benchmark import declared
from pytest_touchstone.core.errors import ExitCode, WireError
from pytest_touchstone.core.requests import scrub
from pytest_touchstone.plugin.collection import generate, given_of
from pytest_touchstone.plugin.interrupts import STOPPED, WORKERS_ENDED, is_of_workers
from pytest_touchstone.plugin.item_errors import RepeatedErrors, no_silent_end
from pytest_touchstone.plugin.plain_stream import keep_keys_out
from pytest_touchstone.plugin.session import EvalSession

SESSION: Final = pytest.StashKey[EvalSession]()


class Hooks:
    """Hooks that call a session."""

    def __init__(self, session: EvalSession) -> None:
        self.session = session


class SessionHooks(Hooks):
    """The hooks of every process: it collects, and answers unless it is the controller of xdist's workers."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None, object, object]:
        """Parametrize by checkpoints first and examples last: other parameters stand between them, in node ids
        too."""
        if declared(metafunc.function) is None or self.session.fault is not None:
            return (yield)
        finish = generate(metafunc, self.session.collection)
        found = yield
        finish()
        return found

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Select items after every other plugin has chosen, ``--lf`` included."""
        found = yield
        self.session.select(items, whole=not session.testsfailed)
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.session.start(session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if given_of(pyfuncitem) is None:
            return None
        with no_silent_end():
            return self.session.call(pyfuncitem)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None:
            self.session.item_raised(item, report, call.excinfo.value)
        if given_of(item) is not None:
            keep_keys_out(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            found = yield
            self.session.ask_again(session)
            self.session.check()
            return found
        finally:
            self.session.sync()

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

    def pytest_unconfigure(self) -> None:
        self.session.close()


class WorkerHooks(Hooks):
    """The hooks of a worker of xdist."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]
        output["touchstone"] = self.session.for_controller()

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        data = yield
        if data is None:
            return data
        try:
            scrubbed: dict[str, Any] = scrub(data)
        except WireError as error:
            # execnet would die of it, and with it this worker, and the item would be lost without a word
            scrubbed = scrub(data, replace=True)
            scrubbed["outcome"] = "failed"
            scrubbed["longrepr"] = f"{type(error).__name__}: {error}"
        return scrubbed


class ControllerHooks(Hooks):
    """The hooks of the process that a person has started."""

    def pytest_collectreport(self) -> None:
        """Report mistakes at once, and not when everything has been collected."""
        self.session.raise_fault()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.session.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run nothing where only a plan, or a dry run, was asked for."""
        if not self.session.only_plans:
            return None
        self.session.raise_fault()
        return None if session.testsfailed else True

    def pytest_report_collectionfinish(self, config: pytest.Config) -> list[str]:
        """Say which benchmarks --eval-tasks means; at ``--co`` also what was left out, which a run says below its
        table."""
        return self.session.collected_lines(all_of_them=config.option.collectonly)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.session.item_reported(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self.session.ends()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End in a line what xdist does not expect: that workers are gone before they answer."""
        if is_of_workers(excinfo):
            raise pytest.exit.Exception(WORKERS_ENDED, ExitCode.NOT_VALID)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Let an item whose worker crashed run once more, alone: the first crash may not be its fault."""
        if self.session.worker_crashed(crashitem):
            report.outcome = "rerun"  # type: ignore[assignment]
            sched.mark_test_pending(crashitem)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Finish before every other plugin: pytest-json-report reads the exit code and writes its file in its own
        hook. Ctrl-C once more, while pytest shows the results, would end in a traceback of pytest."""
        try:
            self.session.finish(session)
            found = yield
            self.session.say_last_lines(session)
        except KeyboardInterrupt:
            raise pytest.exit.Exception(STOPPED, ExitCode.INTERRUPTED) from None
        return found

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        self.session.show(terminalreporter, exitstatus)


def session_of(config: pytest.Config, told: Mapping[str, Any]) -> EvalSession:
    """Return the session of this process; the first call makes it, with the hooks that go with it."""
    session = config.stash.get(SESSION, None)
    if session is None:
        session = config.stash[SESSION] = EvalSession(config, told)
        config.pluginmanager.register(SessionHooks(session))
        config.pluginmanager.register(WorkerHooks(session) if session.worker else ControllerHooks(session))
        config.pluginmanager.register(RepeatedErrors())
    return session
