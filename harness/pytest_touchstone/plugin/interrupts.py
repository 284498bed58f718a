"""``Interrupts``: Ctrl-C and SIGTERM at any moment of a run, which they end in a line, with what is scored kept.

It is there from the moment at which the options are known. Whatever a library makes of Ctrl-C, an ``ImportError`` where
it strikes while one is imported, or nothing at all, is Ctrl-C again at the end of the item or file.

PYTEST_DONT_REWRITE: start-up time counts.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

STOPPED: Final = "stopped; what is scored is kept, and the same command goes on from there"
INTERRUPTED: Final = pytest.ExitCode.INTERRUPTED
NOT_VALID: Final = 9  # ``ExitCode.NOT_VALID``, which needs more imports than there is time for here

WORKERS_ENDED: Final = (
    "workers of xdist have ended before they answered, killed from outside or for lack of memory; what is scored is "
    "kept: give the same command again, with a smaller -n where memory is short"
)


class _Phase(Enum):
    """What Ctrl-C does."""

    WAITING = "it counts when this phase ends, in which pytest or a worker would show a traceback"
    RUNNING = "it ends the run"
    ENDING = "it ends the writing of results, and does nothing while pytest goes on by itself"
    OVER = "it does nothing: all is written and said, and a traceback would follow"


class Interrupts:
    """Ctrl-C while a run ends, until ``close``: pytest itself would show a traceback of its own code.

    It is taken over from the first Ctrl-C, or from the end of the last item. The next one ends the writing of results.
    It does nothing while pytest goes on by itself, which takes a moment. One more is a plain Ctrl-C again. By then the
    records of all items are on disk.

    SIGTERM, by which ``kill`` and clusters stop a run, is Ctrl-C from the beginning, unless somebody has taken it over.
    ``stopped`` says that either has come.
    """

    def __init__(
        self, hook: Any = None, *, terms: bool = False, whole: bool = False, held: bool = False
    ) -> None:
        """``hook`` are pytest's, which are told; ``terms`` takes SIGTERM over; ``whole`` says that nothing of the
        process comes after the session; with ``held`` Ctrl-C waits for ``beginning``."""
        self.stopped, self._whole = False, whole
        self._before: Any = None
        self._hook = hook
        self._pressed = self._stoppable = self._blocked = False
        self._phase = _Phase.WAITING if held else _Phase.RUNNING
        self._terms = (
            terms
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if self._terms:
            signal.signal(signal.SIGTERM, self._term)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._first)

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Let conftests be loaded. From then on Ctrl-C waits for the session: until there pytest shows a traceback."""
        try:
            self._hear()
            yield
            self._wait()
        except BaseException:
            if not self.stopped:
                raise
            raise SystemExit(self._say_stopped()) from None

    def arm(self) -> None:
        """Take over Ctrl-C; calling it again does nothing, and other threads cannot."""
        if not self._armed and threading.current_thread() is threading.main_thread():
            self._before = self._usual(signal.signal(signal.SIGINT, self._press))
            self._phase = _Phase.ENDING

    @property
    def _armed(self) -> bool:
        return self._phase in (_Phase.ENDING, _Phase.OVER)

    def _usual(self, handler: Any) -> Any:
        return signal.default_int_handler if handler == self._first else handler

    def finished(self, work: Callable[[], None]) -> bool:
        """Do some work; return whether it was done, and not ended by Ctrl-C."""
        try:
            self._stoppable = True
            if not self._pressed:
                work()
            return not self._pressed
        except BaseException:  # whatever Ctrl-C was turned into
            if not self._pressed:
                raise
            return False
        finally:
            self._stoppable = False

    def close(self) -> None:
        """Give both back."""
        self._unblock()
        # Python itself ends by the signal, and not with our exit code, where Ctrl-C was last seen to leave an exec,
        # such as that of scipy's imports.
        exec("")
        if self._terms:
            self._terms = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, self._usual(signal.getsignal(signal.SIGINT)))
        if self._armed:
            self._phase = _Phase.RUNNING
            signal.signal(signal.SIGINT, signal.SIG_IGN if self._whole else self._before)

    def _term(self, _number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # pytest then names the place that was reached
        pressed = signal.getsignal(signal.SIGINT)  # which is ignored by a process in the background
        self.stopped = True
        (pressed if callable(pressed) else signal.default_int_handler)(signal.SIGINT, frame)

    def _first(self, _number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        self.stopped, waiting = True, self._phase is _Phase.WAITING
        self.arm()  # at once: a second one would end pytest while it looks at the first
        if not waiting and not _unheard(frame):
            raise KeyboardInterrupt

    def _press(self, _number: int, frame: FrameType | None) -> None:
        again, self._pressed = self._pressed, True
        if self._phase is _Phase.ENDING and (self._stoppable or again) and not _unheard(frame):
            raise KeyboardInterrupt

    # Hooks: what Ctrl-C was turned into is Ctrl-C

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self) -> Generator[None, int | None, int | None]:
        try:
            return (yield)
        except (KeyboardInterrupt, pytest.UsageError):
            if not self.stopped:
                raise
            return self._say_stopped()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._hear()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self) -> None:
        """Let both wait while xdist starts workers, and in these, which show a traceback until they have begun."""
        if threading.current_thread() is threading.main_thread():
            self._wait()
            self._blocked = True
            # Workers inherit it; our hook of their collection ends it there.
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        self._unblock()
        self._hear()

    def _unblock(self) -> None:
        if self._blocked and threading.current_thread() is threading.main_thread():
            self._blocked = False
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))

    def _wait(self) -> None:
        if self._phase is _Phase.RUNNING:
            self._phase = _Phase.WAITING

    def _hear(self) -> None:
        if self._phase is _Phase.WAITING:
            self._phase = _Phase.RUNNING
        self._checked(None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        if self._phase is _Phase.ENDING:
            self._phase = _Phase.OVER

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self.arm()  # what comes between here and the hook of the session's end is pytest's own code

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, object, object]:
        return self._checked((yield))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, object, object]:
        return self._checked((yield))

    def _checked(self, found: object) -> object:
        if self.stopped:
            raise KeyboardInterrupt
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Leave out frames that were between two lines, where Python names none and pytest expects one."""
        excinfo.traceback = excinfo.traceback.filter(lambda one: one._rawentry.tb_lineno is not None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End in a line what was stopped, and what xdist does not expect: that workers are gone before they answer."""
        if self.stopped:
            try:
                raise pytest.exit.Exception(STOPPED, INTERRUPTED)
            except pytest.exit.Exception as stopped:
                self._hook.pytest_keyboard_interrupt(excinfo=pytest.ExceptionInfo.from_exception(stopped))
                raise
        if _of_workers(excinfo):
            raise pytest.exit.Exception(WORKERS_ENDED, NOT_VALID)

    def _say_stopped(self) -> int:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED


def interrupts_of(config: pytest.Config, *, held: bool = False) -> Interrupts:
    """Return those of this process; the first call takes Ctrl-C over, until pytest has ended."""
    if (found := config.stash.get(INTERRUPTS, None)) is None:
        found = config.stash[INTERRUPTS] = Interrupts(
            config.hook, terms=not hasattr(config, "workerinput"), whole=is_whole(config), held=held
        )
        config.pluginmanager.register(found)
        config.add_cleanup(found.close)
    return found


INTERRUPTS: Final = pytest.StashKey[Interrupts]()


def _unheard(frame: FrameType | None) -> bool:
    """Return whether Python would print what is raised now, and go on: in the callback of an import's lock."""
    return (
        frame is not None and frame.f_code.co_filename.startswith("<frozen") and frame.f_code.co_name == "cb"
    )


def is_whole(config: pytest.Config) -> bool:
    """Return whether the process is nothing but this session, in whatever way pytest was started."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name.partition(".")[0] if spec is not None else Path(file or "").stem
    return name == "pytest" and list(config.invocation_params.args) == sys.argv[1:]


def _of_workers(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether xdist could not speak to a worker (``WorkerController.setup``), or has none left
    (``DSession.loop_once``, xdist 3.8)."""
    last = str(excinfo.traceback[-1].frame.f_globals.get("__name__"))
    lost = isinstance(excinfo.value, (EOFError, OSError)) and last.startswith("execnet.")
    return lost or (isinstance(excinfo.value, RuntimeError) and last == "xdist.dsession")
