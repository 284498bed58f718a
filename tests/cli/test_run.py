"""``touchstone run`` is pytest on the shipped benchmarks or on given files, with any of its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_touchstone.results.run_directory import DEFAULT_FILES
from tests.support.installed import install, run_python, touchstone
from tests.support.lines import missing

QUICK = ("--checkpoint", "fake:causal", "--eval-limit", "1", "-p", "no:cacheprovider")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that has tests, and a benchmark."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_own.py").write_text("def test_own():\n    assert False\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (tmp_path / "test_mine.py").write_text(
        "from pytest_touchstone import Loglikelihood, benchmark\n\n\n"
        '@benchmark("mine", version=1, rows=[{}, {}], asks=Loglikelihood, primary="acc")\n'
        "def test_mine(example):\n"
        '    yield Loglikelihood("a", " b")\n'
        '    return {"acc": 1.0}\n'
    )
    return tmp_path


def benchmarks(folder: Path) -> list[str]:
    """The benchmarks of the only run."""
    (path,) = (folder / "results").glob("*/summary.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    return sorted({row["benchmark"] for row in rows})


def test_without_a_file_the_shipped_benchmarks_are_run_not_the_projects_tests(project: Path) -> None:
    done = touchstone("run", *QUICK, "--tasks", "arc_*", "-k", "not arc_challenge", "-q", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert benchmarks(project) == ["arc_easy"]


def test_files_of_ones_own_are_run_where_they_are_given(project: Path) -> None:
    done = touchstone("run", "test_mine.py::test_mine", *QUICK, "--tasks=mine", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert benchmarks(project) == ["mine"]


@pytest.mark.parametrize("words", [("run",), DEFAULT_FILES], ids=["run", "pytest"])
def test_the_projects_settings_hold_for_a_checkpoint_that_lies_elsewhere(
    project: Path, words: tuple[str, ...], whole: Path
) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write("[tool.touchstone.gate]\nmargn = 0.02\n")
    given = [*words, "--eval-tasks=arc_easy", "--checkpoint", str(whole), "--gate", "-p", "no:cacheprovider"]
    done = run_python("-m", "pytest_touchstone.cli" if words == ("run",) else "pytest", *given, cwd=project)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "margn" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("tests",), 1, "1 failed"),
        (("--tasks", "arc_chalenge", *QUICK), 4, "did you mean arc_challenge?"),
        (("--ta", "arc_easy"), 4, "--ta"),
    ],
    ids=str,
)
def test_exit_codes_are_those_of_pytest(
    project: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = touchstone("run", *arguments, cwd=project)
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_help_tells_what_it_takes_itself(tmp_path: Path) -> None:
    shown = touchstone("run", "--help", cwd=tmp_path).stdout
    assert "any option of pytest" in shown
    assert "--format" not in shown


def test_other_commands_still_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    done = touchstone("runs", "--tasks", "x", cwd=tmp_path)
    assert done.returncode == 4
    assert "unknown option --tasks" in done.stderr


HOSTILE = """\
[tool.pytest.ini_options]
addopts = "-W error --strict-markers -n 4 --maxfail=1 --cov=pkg --cov-fail-under=80 -p no:cacheprovider"
filterwarnings = ["error"]
python_files = ["check_*.py"]
python_functions = ["check_*"]
required_plugins = ["pytest-nowhere>=1"]
testpaths = ["tests"]
timeout = 1
xfail_strict = true

[tool.touchstone.gate]
mode = "strict"
"""

CONFTEST = """\
import pytest

@pytest.fixture
def checkpoint():
    return "the project's own, of a function's scope"

def pytest_collection_modifyitems(items):
    items.clear()

def pytest_sessionfinish(session):
    session.exitstatus = 3
"""

PLUGIN = """\
def pytest_collection_modifyitems(items):
    items.reverse()
    del items[1:]

def pytest_unconfigure(config):
    raise SystemExit(5)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository whose settings, conftest and plug-in for its own tests break every run of pytest in it."""
    (tmp_path / "pyproject.toml").write_text(HOSTILE)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    install(tmp_path / "installed", "hostile", PLUGIN, {"pytest11": {"hostile": "hostile"}})
    return tmp_path


def test_nothing_of_a_repository_changes_a_run_of_shipped_benchmarks_but_our_own_settings(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nowhere")
    monkeypatch.setenv("PYTEST_PLUGINS", "hostile")
    given = ("--tasks", "real_coref", "--checkpoint", "fake:masked", "--eval-limit", "3", "--gate", "-n", "1")
    done = touchstone("run", *given, cwd=hostile, packages=hostile / "installed")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (hostile / "results").glob("*/summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    assert [row["scored"] for row in summary["results"]] == [3]
    assert summary["gate"]["mode"] == "strict"
    assert "null" not in done.stdout  # the file of configuration that is none
    assert "touchstone run --tasks real_coref" in (path.parent / "report.html").read_text(encoding="utf-8")


def test_files_of_ones_own_keep_their_conftest_and_plug_ins(project: Path) -> None:
    (project / "conftest.py").write_text("def pytest_report_header():\n    return 'this conftest is read'\n")
    packages = install(
        project / "installed",
        "welcome",
        "def pytest_configure():\n    print('hello')\n",
        {"pytest11": {"w": "welcome"}},
    )
    done = touchstone("run", "test_mine.py", *QUICK, "-s", cwd=project, packages=packages)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this conftest is read" in done.stdout
    assert "hello" in done.stdout


def test_a_plug_in_that_is_written_for_benchmarks_is_loaded_everywhere(tmp_path: Path) -> None:
    code = "def pytest_touchstone_run_finished(summary):\n    print('told of', summary.run_id)\n"
    packages = install(tmp_path / "installed", "teller", code, {"pytest11": {"teller": "teller"}})
    with (packages / "teller-0.1.dist-info" / "METADATA").open("a") as file:
        file.write("Requires-Dist: pytest-touchstone>=0.1\n")
    done = touchstone("run", *QUICK, "--tasks", "arc_easy", "-s", cwd=tmp_path, packages=packages)
    assert "told of" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("word", "hint"),
    [("arc_easy", "--tasks arc_easy runs that benchmark"), ("evls/", "check its spelling")],
)
def test_what_is_no_file_is_one_line(word: str, hint: str, tmp_path: Path) -> None:
    done = touchstone("run", word, *QUICK, "-n", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert not missing(line, word, hint)


@pytest.mark.parametrize("words", [("@words",), ("--pyargs", "json", "email")], ids=["file", "modules"])
def test_what_pytest_takes_for_more_words_and_for_modules_is_left_to_it(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "words").write_text("--version\n")
    done = touchstone("run", *words, "--collect-only", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "no such file" not in done.stderr
    assert done.returncode in (0, 5), done.stdout + done.stderr


def test_xdist_too_says_that_a_file_is_missing(project: Path) -> None:
    done = run_python("-m", "pytest", "test_yours.py", *QUICK, "-n", "2", cwd=project)
    assert done.returncode == 4, done.stdout
    assert not missing(done.stderr, "not found: test_yours.py")
