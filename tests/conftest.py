"""Tests marked ``slow`` run where ``--run-slow`` or their node id asks for them; other runs deselect them. So are those
marked ``real_server``, by ``--run-servers``.

The fixtures are those of several folders of tests.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.pytester import SysModulesSnapshot
from execnet.gateway_io import popen_bootstrapline
from hypothesis import HealthCheck, settings

from pytest_touchstone.checkpoints.builtin import cache_folder
from tests.support.distributions import INSTALLED, remember_distributions
from tests.support.forking import python
from tests.support.tiny import tiny_causal

if TYPE_CHECKING:
    from pytest_touchstone.metrics.math import MathJudge

SLOW = "slow: takes more than a few seconds; run with --run-slow, or by its node id"
REAL_SERVER = "real_server: needs vllm or llama-server on PATH; run with --run-servers, or by its node id"

# Here, since the conftests of some folders import torch, which reads both at its own import.
# With tiny models torch's threads mostly wait for each other, and most of all beside other processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Where a test has several all the same, one that waits leaves its core to the other worker.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow too")
    parser.addoption(
        "--run-servers", action="store_true", help="run the tests with vllm and llama-server too"
    )
    parser.addoption("--drill-seed", type=int, help="the one seed that the drill replays (tests/drill)")
    parser.addoption(
        "--drill-runs", type=int, help="the random runs of the drill that are cut, 100000 at best"
    )
    parser.addoption("--drill-items", type=int, help="the items of the drill's largest run, 1000000 at best")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SLOW)
    config.addinivalue_line("markers", REAL_SERVER)
    # Otherwise the many processes of tests compile every module anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A process in the background ignores Ctrl-C, and so would all that it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Without it Ray joins whatever cluster runs on this machine: that of another worker's test.
    os.environ["RAY_ADDRESS"] = "local"
    # Thousands of items live to the end, and most of what tests leave is freed without the collector.
    gc.set_threshold(20_000, 10, 10)
    # How long an example takes depends on what else the machine does. A change is judged by the same examples as the
    # one before it; each night there are twice as many, and others.
    unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
    settings.register_profile("unhurried", unhurried, derandomize=True, database=None)
    settings.register_profile("thorough", unhurried, max_examples=100)
    settings.load_profile("thorough" if config.getoption("--run-slow") else "unhurried")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any("::" in argument for argument in config.args):
        return
    asked = {"slow": config.getoption("--run-slow"), "real_server": config.getoption("--run-servers")}
    without = [name for name, wanted in asked.items() if not wanted]
    left_out = {item for item in items if any(item.get_closest_marker(name) for name in without)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """What tests write need not outlive a power cut; a run waits for the disk a dozen times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def at_rest() -> Iterator[None]:
    """A run's header says so where other programs compute; what tests compare has no such line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
        yield


@pytest.fixture(scope="session", autouse=True)
def frozen() -> Iterator[None]:
    """What is there before the first test stays to the end; the runs within tests would search all of it for garbage,
    each several times. What they leave is found as ever."""
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gc.freeze", lambda: None)
        patch.setattr("gc.unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    """What pytester starts, and xdist within tests, are forks of a process that has imported what they need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest.Pytester, "_getpytestargs", lambda _: (python(), "-m", "pytest"))
        patch.setattr("execnet.gateway_io.popen_args", lambda _: [python(), "-u", "-c", popen_bootstrapline])
        yield


@pytest.fixture(scope="session", autouse=True)
def usual_width() -> Iterator[None]:
    """Lines break where they do without a terminal, whatever the shell of these tests exports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def libraries() -> Iterator[None]:
    """A run within a test leaves the libraries that it imported first; else later tests find half of transformers."""
    restore = SysModulesSnapshot.restore
    installed = _installed(sys.modules)

    def restored(snapshot: SysModulesSnapshot) -> None:
        imported = dict(sys.modules)
        restore(snapshot)
        dropped = {name: imported[name] for name in imported.keys() - sys.modules.keys()}
        installed.update(_installed(dropped))
        for name, module in dropped.items():
            if name.partition(".")[0] in installed:
                sys.modules[name] = module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SysModulesSnapshot, "restore", restored)
        yield


@pytest.fixture(autouse=True)
def benchmarks_let_go() -> Iterator[None]:
    """A command that collects the shipped benchmarks leaves their modules; a later run within a test warns of them."""
    yield
    if "evals" in sys.modules:
        for name in [name for name in sys.modules if name.partition(".")[0] == "evals"]:
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def unrecorded() -> Iterator[None]:
    """A run within a test is judged by what it prints and leaves; pytester would note each call of each hook too."""

    class Interrupts:
        """All that pytester itself asks about such a run."""

        def __init__(self) -> None:
            self.ret: int | None = None
            self.calls: list[Any] = []

        def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
            self.calls.append(SimpleNamespace(excinfo=excinfo))

        def getcalls(self, _names: str) -> list[Any]:
            return self.calls

    def recorder(_: pytest.Pytester, plugins: pytest.PytestPluginManager) -> Interrupts:
        interrupts = Interrupts()
        plugins.register(interrupts)
        return interrupts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest.Pytester, "make_hook_recorder", recorder)
        yield


def _installed(modules: Mapping[str, Any]) -> set[str]:
    """The top-level names of those that lie where packages are installed."""
    return {
        name.partition(".")[0]
        for name, module in modules.items()
        if INSTALLED in (getattr(module, "__file__", None) or "")
    }


@pytest.fixture(scope="session", autouse=True)
def distributions() -> Iterator[None]:
    """A run asks each of hundreds of distributions what it is, as do many in one process; tests install none there."""
    with pytest.MonkeyPatch.context() as patch:
        remember_distributions(patch)
        yield


@pytest.fixture(scope="session")
def kernels() -> Path:
    """The folder of compiled kernels, which every process uses."""
    folder = cache_folder("kernels")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@pytest.fixture
def pytester(pytester: pytest.Pytester, kernels: Path) -> pytest.Pytester:
    """A run within a test has an empty home; each of its processes would compile the kernels anew."""
    cache = pytester.path / ".cache" / "touchstone"
    cache.mkdir(parents=True)
    (cache / "kernels").symlink_to(kernels)
    return pytester


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny causal checkpoint as a trainer saves one; tests leave it as it is."""
    return tiny_causal(tmp_path_factory.mktemp("whole") / "checkpoint-7")


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    """A folder with a tokenizer in it."""
    shutil.copy(whole / "tokenizer.json", tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def judge() -> Iterator[MathJudge]:
    """The process that compares formulas."""
    from pytest_touchstone.metrics.math import MathJudge

    with closing(MathJudge()) as started:
        yield started
