"""A project that has the plugin installed, and no benchmark: nothing of it changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT, SOURCE
from tests.support.project import ALONE, Project
from tests.support.tiny import tiny_causal

REPORT = """
import gc, sys

def test_plain():
    mine = sorted(name for name in sys.modules if name.split(".")[0] == "pytest_touchstone")
    print("MODULES", mine, "pydantic" in sys.modules, "gc", gc.isenabled(), gc.get_freeze_count())
"""

OWN_OPTIONS = """
def pytest_addoption(parser):
    for name in ("--checkpoint", "--gate", "--baseline"):
        parser.addoption(name, help=f"my own {name}")
"""

SHOWS_OPTION = """
def test_mine(request):
    assert request.config.getoption("--checkpoint") == "mine"
"""

OWN_FIXTURES = """
import pytest

@pytest.fixture
def checkpoint():
    return "mine"

@pytest.fixture
def model_engine(checkpoint):
    return f"engine of {checkpoint}"
"""

USES_FIXTURES = """
def test_fixtures(checkpoint, model_engine):
    assert (checkpoint, model_engine) == ("mine", "engine of mine")
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A run in a process of its own; the plugin comes by its entry point."""
    return pytester.runpytest_subprocess(*ALONE, *arguments)


@pytest.mark.parametrize("arguments", [(), ("--eval-limit", "nonsense"), ("-n", "1")], ids=" ".join)
def test_nothing_of_ours_is_imported_but_the_plugin(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TOUCHSTONE_DATA", "no-such-folder")
    pytester.makepyfile(test_plain=REPORT)
    pytester.makeconftest(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    print('AT THE END', sorted(n for n in sys.modules if n.split('.')[0] == 'pytest_touchstone'))\n"
    )
    # A fork has imported much before.
    result = pytester.run(sys.executable, "-m", "pytest", *ALONE, "-rP", *arguments)
    result.assert_outcomes(passed=1)
    ours = "['pytest_touchstone', 'pytest_touchstone.plugin']"
    assert f"MODULES {ours} False gc True 0" in result.outlines
    assert f"AT THE END {ours}" in result.outlines


def test_a_wrong_option_is_said_before_anything_runs_once_there_is_a_benchmark(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_a="from pytest_touchstone import Loglikelihood, benchmark\n"
        "@benchmark(name='a', version=1, data='a/test', asks=Loglikelihood, primary='acc')\n"
        "def test_a(example):\n    yield\n",
        test_b="raise SystemExit('not reached')",
    )
    for arguments in (["--checkpoint", "nonsense"], ["--eval-limit", "nonsense"]):
        result = run(pytester, *arguments)
        assert result.ret == 4
        (line,) = filter(None, result.errlines)
        assert "nonsense" in line


@pytest.mark.parametrize("order", ["conftest", "plugin before", "conftest below"])
def test_short_names_give_way(pytester: pytest.Pytester, order: str) -> None:
    tests = pytester.mkdir("tests")
    (tests / "test_mine.py").write_text(SHOWS_OPTION)
    if order == "conftest":
        pytester.makeconftest(OWN_OPTIONS)
    elif order == "plugin before":
        pytester.makepyfile(own_options=OWN_OPTIONS)
    else:
        (tests / "conftest.py").write_text(OWN_OPTIONS)
    early = ["-p", "own_options"] if order == "plugin before" else []
    pytester.syspathinsert()
    result = run(pytester, *early, "--checkpoint", "mine", "tests")
    result.assert_outcomes(passed=1)
    shown = run(pytester, *early, "--help", "tests")
    shown.stdout.fnmatch_lines(["*my own --checkpoint*"])
    text = " ".join(str(shown.stdout).split())
    for name in ("checkpoint", "gate", "baseline"):
        assert f"--eval-{name}" in text
        assert f"(--{name} is another plugin's here)" in text


def test_what_follows_a_short_name_is_no_path_to_a_conftest(pytester: pytest.Pytester) -> None:
    """Else the conftest of the folder with the model would be run, and the project's own would not."""
    model = tiny_causal(pytester.path / "model")
    (model / "conftest.py").write_text("raise RuntimeError('somebody else wrote this')")
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--own')\n")
    pytester.makepyfile("def test_plain(): pass")
    result = run(
        pytester,
        "--checkpoint",
        str(model),
        "--own",
        "1",
        "test_what_follows_a_short_name_is_no_path_to_a_conftest.py",
    )
    result.assert_outcomes(passed=1)


def test_a_conftest_may_load_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OWN_OPTIONS + "\npytest_plugins = ['pytest_touchstone.plugin']\n")
    pytester.makepyfile(SHOWS_OPTION)
    result = run(pytester, "-p", "no:pytest_touchstone.plugin", "--checkpoint", "mine")
    assert result.ret in (0, 1)  # a plugin that is blocked stays so
    result = pytester.runpytest_subprocess(*ALONE, "--checkpoint", "mine")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("where", ["conftest", "module", "plugin"])
def test_fixtures_of_others_keep_their_names(pytester: pytest.Pytester, where: str) -> None:
    if where == "conftest":
        pytester.makeconftest(OWN_FIXTURES)
    pytester.makepyfile(test_it=(OWN_FIXTURES if where == "module" else "") + USES_FIXTURES)
    if where == "plugin":
        pytester.makepyfile(own_fixtures=OWN_FIXTURES)
    pytester.syspathinsert()
    early = ["-p", "own_fixtures"] if where == "plugin" else []
    run(pytester, *early, "--eval-checkpoint", "fake:causal").assert_outcomes(passed=1)


@pytest.mark.parametrize("plugin", ["capture", "setuponly", "setupplan", "skipping", "cacheprovider"])
def test_a_plugin_of_pytest_may_be_missing(project: Project, plugin: str) -> None:
    result = project.run("-p", f"no:{plugin}", apart=True)
    assert result.ret == 0
    result.assert_outcomes(passed=20)


def test_shipped_benchmarks_run_beside_a_fixture_of_their_arguments_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OWN_FIXTURES)
    shipped = str(ROOT / "evals" / "test_real_coref.py")
    result = run(pytester, shipped, "--checkpoint", "fake:masked", "--eval-limit", "2")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] > 0


IDENTITIES = """
import pytest

class Listener:
    "Knows items by their node ids as objects, as allure-pytest does."

    def __init__(self):
        self.uuids, self.results = {}, {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.results[self.uuids.setdefault(id(item.nodeid), object())] = item.name
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        yield
        assert self.results[self.uuids.get(id(item.nodeid))] == item.name
        assert all(len(repr(value)) < 2000 for value in item.callspec.params.values())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        uuid = self.uuids.get(id(item.nodeid))
        report = yield
        assert self.results[uuid] == item.name
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logfinish(self, nodeid):
        del self.results[self.uuids.pop(id(nodeid))]
        return (yield)

    def pytest_sessionfinish(self):
        assert not self.results

def pytest_configure(config):
    config.pluginmanager.register(Listener())
"""


def test_a_plugin_may_know_items_by_the_identity_of_their_node_ids(project: Project) -> None:
    (project.path / "conftest.py").write_text(IDENTITIES, encoding="utf-8")
    result = project.run(apart=True)
    assert result.ret == 0
    result.assert_outcomes(passed=20)


def test_a_name_of_the_public_api_is_found_by_whoever_looks() -> None:
    import pytest_touchstone

    assert set(pytest_touchstone.__all__) <= set(dir(pytest_touchstone))
    assert pytest_touchstone.benchmark.__module__ == "pytest_touchstone.core.benchmark"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pytest_touchstone.nonsense  # noqa: B018
    assert Path(sys.modules["pytest_touchstone"].__file__ or "").name == "__init__.py"


OWN = """
from pytest_touchstone import Loglikelihood, benchmark

@benchmark("own", version=1, rows=[{"n": n} for n in range(3)], asks=Loglikelihood, primary="acc")
def test_own(example):
    yield Loglikelihood(str(example["n"]), " b")
    return {"acc": 1.0}
"""

WITHOUT_POSIX = """
import signal, sys

del signal.pthread_sigmask
sys.modules["fcntl"] = sys.modules["resource"] = None
"""
"""What Python lacks on Windows, for a ``sitecustomize.py``."""


def anew(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A run by a Python that reads the folder's ``sitecustomize.py``; a fork has imported much before."""
    return pytester.run(sys.executable, "-m", "pytest", *ALONE, *arguments)


@pytest.fixture
def windows(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder whose Python lacks what Windows has not."""
    pytester.makepyfile(sitecustomize=WITHOUT_POSIX)
    monkeypatch.setenv("PYTHONPATH", f"{pytester.path}{os.pathsep}{os.environ.get('PYTHONPATH', SOURCE)}")
    return pytester


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=str)
def test_where_benchmarks_do_not_run_other_tests_do_and_one_line_says_so(
    windows: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    windows.makepyfile(test_own=OWN, test_plain="def test_plain(): pass")
    plain = anew(windows, "-rs", *workers)
    plain.assert_outcomes(passed=1, skipped=1)
    plain.stdout.fnmatch_lines(["SKIPPED*Linux and macOS*"])
    asked = anew(windows, "--checkpoint", "fake:causal", *workers)
    assert asked.ret == 4
    assert [line for line in asked.errlines if line] == [f"ERROR: {LINE.format(sys.platform)}"]
    command = windows.run(sys.executable, "-m", "pytest_touchstone.cli", "runs")
    assert (command.ret, command.errlines) == (4, [f"touchstone: {LINE.format(sys.platform)}"])


LINE = "pytest-touchstone runs benchmarks on Linux and macOS, and this is {}; on Windows use WSL"


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=str)
@pytest.mark.parametrize(
    ("name", "value"),
    [("CHECKPOINT", "/nope"), ("GATE", "1"), ("DRY_RUN", "1"), ("LIMIT", "x"), ("OUTPUT", "/proc/none/x")],
)
def test_the_environment_counts_once_there_is_a_benchmark(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    workers: tuple[str, ...],
) -> None:
    monkeypatch.setenv(f"TOUCHSTONE_{name}", value)
    pytester.makepyfile(test_plain="def test_plain(): pass")
    guest = run(pytester, *workers)
    assert guest.ret == 0
    guest.assert_outcomes(passed=1)
    if name in ("CHECKPOINT", "LIMIT"):
        pytester.makepyfile(test_own=OWN)
        own = run(pytester, *workers)
        assert own.ret == 4
        assert value in str(own.stderr)


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only"])
@pytest.mark.parametrize("gate", [(), ("--gate",)], ids=str)
def test_where_pytest_runs_no_test_nothing_is_asked_and_nothing_written(
    pytester: pytest.Pytester, option: str, gate: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_own=OWN)
    result = run(pytester, "--checkpoint", "fake:causal", option, *gate)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_own[[]own/2]*"])
    assert not (pytester.path / "results").exists()


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=str)
def test_an_item_that_is_collected_twice_is_asked_once(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_own=OWN)
    twice = ("--keep-duplicates", "test_own.py", "test_own.py")
    result = run(pytester, "--checkpoint", "fake:causal", *twice, *workers)
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 3


@pytest.mark.parametrize("several", [False, True], ids=["one checkpoint", "two"])
@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_package_that_is_missing_is_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, package: str, several: bool
) -> None:
    (pytester.mkdir("hidden") / f"{package}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{package}'\")"
    )
    folder = pytester.path / "hidden"
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', SOURCE)}")
    pytester.makepyfile(test_own=OWN)
    checkpoints = [str(tiny_causal(pytester.path / name)) for name in ("a", "b")[: 1 + several]]
    result = anew(pytester, *(word for path in checkpoints for word in ("--checkpoint", path)))
    assert result.ret == 4
    (line,) = filter(None, result.errlines)
    assert f"No module named '{package}'" in line
    assert "Traceback" not in str(result.stdout)
