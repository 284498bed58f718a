"""``expect_like`` in the tests of an engine's project, against a server of texts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pytest_touchstone
from pytest_touchstone.cli.command import run_command
from pytest_touchstone.core.errors import ExitCode, HarnessError, OptionError
from pytest_touchstone.core.settings import settings_table
from pytest_touchstone.plugin import expectation
from pytest_touchstone.plugin.expectation import expect_like, parse_budget
from tests.support.answer_server import answer_server, read_answers

BENCHMARK = '''
from pytest_touchstone import Generate, benchmark


@benchmark(name="adding", version=1, data="adding/test", asks=Generate, primary="right", metrics=("right",))
def test_adding(example):
    """A sum of two numbers."""
    tokens = 9 if example["question"] == "0+0=" else 8
    answer = yield Generate(example["question"], max_new_tokens=tokens, stop=["\\n"])
    return {"right": answer.text.strip() == example["answer"]}
'''

ITEMS = 120


class EngineProject:
    """A project with a file of references that two runs of a sound server made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "evals").mkdir()
        (path / "evals" / "test_adding.py").write_text(BENCHMARK)
        (path / "data" / "adding").mkdir(parents=True)
        self.rows = path / "data" / "adding" / "test.jsonl"
        rows = ({"question": f"{n * 37 % 101}+{n}=", "answer": str(n * 37 % 101 + n)} for n in range(ITEMS))
        self.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.answers = read_answers(self.rows)


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of the file of references."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("references")
        patch.chdir(path)
        project = EngineProject(path)
        for name in ("first", "second"):
            with answer_server(project.answers) as url:
                pytest_touchstone.evaluate(url, benchmarks="evals", data="data", run_id=name, no_cache=True)
        assert run_command(["baseline", "save", "first", "second", "adder.answers"]) == 0
        return (path / "adder.answers").read_text()


@pytest.fixture
def project(tmp_path: Path, references: str, monkeypatch: pytest.MonkeyPatch) -> EngineProject:
    """A project with the references, and no results folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adder.answers").write_text(references)
    return EngineProject(tmp_path)


@pytest.fixture
def damaged(project: EngineProject) -> Iterator[str]:
    """A server that answers a fifth of the questions wrongly."""
    with answer_server(project.answers, wrong=0.2) as url:
        yield url


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sound_server_passes_and_nothing_is_written(project: EngineProject) -> None:
    before = sorted(path.name for path in project.path.rglob("*") if "__pycache__" not in path.parts)
    with answer_server(project.answers, name="another") as url:
        expect_like("adder.answers", url, data="data")
    after = sorted(path.name for path in project.path.rglob("*") if "__pycache__" not in path.parts)
    assert before == [name for name in after if not name.startswith("__pycache__")]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_limits_of_tokens_may_differ_from_item_to_item(project: EngineProject) -> None:
    with answer_server(project.answers) as url:
        expect_like("adder.answers", url, limit=2, data="data")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_damaged_server_fails_with_items_and_both_answers(damaged: str) -> None:
    with pytest.raises(AssertionError) as caught:
        expect_like("adder.answers", damaged, limit=100, data="data")
    text = str(caught.value)
    assert "adding right" in text
    assert "n 100" in text
    assert "2 runs" in text
    assert "scored twice" in text
    assert text.count("right before, 0 now") == 5
    assert text.count("now       not ") == 5


@pytest.mark.slow
def test_a_build_is_warned_of_what_so_few_items_cannot_find(project: EngineProject) -> None:
    with answer_server(project.answers) as url, pytest.warns(UserWarning, match="find a loss of") as caught:
        expect_like("adder.answers", url, limit=500, data="data")
    (warning,) = caught
    assert warning.filename == __file__
    assert f"limit 500, and adder.answers has {ITEMS} items" in str(warning.message)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_inconclusive_fails_only_where_it_is_asked_to(project: EngineProject) -> None:
    with answer_server(project.answers, wrong=0.02) as url:
        expect_like("adder.answers", url, data="data")
        with pytest.raises(AssertionError, match="cannot be told from"):
            expect_like("adder.answers", url, data="data", inconclusive="fail")


def test_what_is_not_answered_in_time_is_not_told(project: EngineProject) -> None:
    with (
        answer_server(project.answers, wrong=0.2, seconds=60) as url,
        pytest.warns(UserWarning, match="answered in time: inconclusive"),
    ):
        expect_like("adder.answers", url, data="data", budget="3 s")


def test_rows_that_are_not_those_of_the_file_are_refused(project: EngineProject) -> None:
    project.rows.write_text(project.rows.read_text().replace("+3=", "+ 3="))
    with answer_server(project.answers) as url, pytest.raises(HarnessError, match=r"rows.*data="):
        expect_like("adder.answers", url, data="data")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "other", "fault"),
    [
        ('example["question"],', '"Q: " + example["question"],', "prompts"),
        ("else 8", "else 7", "stops or limits"),
    ],
)
def test_a_benchmark_of_this_name_that_asks_otherwise_is_refused(
    project: EngineProject, text: str, other: str, fault: str
) -> None:
    file = project.path / "evals" / "test_adding.py"
    file.write_text(BENCHMARK.replace(text, other))
    with answer_server(project.answers) as url, pytest.raises(HarnessError, match=fault):
        expect_like("adder.answers", url, data="data")


@pytest.mark.parametrize("folder", ["../evals/", "evals\\u0000/", "\\ud800/", "e" * 300])
def test_a_benchmarks_file_outside_of_the_project_is_not_run(project: EngineProject, folder: str) -> None:
    text = Path("adder.answers").read_text().replace('"evals/', f'"{folder}')
    Path("adder.answers").write_text(text)
    with pytest.raises(HarnessError, match="below the current folder"):
        expect_like("adder.answers", "fake:causal", data="data")


def test_a_system_prompt_of_the_file_names_no_file(
    project: EngineProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("adder.answers").read_text()
    Path("adder.answers").write_text(
        text.replace("\nversion: ", '\nsettings: {"system": "secret.txt"}\nversion: ', 1)
    )
    Path("secret.txt").write_text("a key")
    asked: list[str] = []

    def evaluated(given: dict[str, object], *_: object, **__: object) -> None:
        asked.append(settings_table()["system"].value(str(given["system"])))
        raise HarnessError("enough")

    monkeypatch.setattr(expectation, "evaluate_with", evaluated)
    with pytest.raises(HarnessError, match="enough"):
        expect_like("adder.answers", "http://127.0.0.1:9/v1", data="data")
    assert asked == ["secret.txt"]


def test_a_server_that_is_not_there_is_a_mistake(project: EngineProject) -> None:
    with pytest.raises(HarnessError, match=r"127\.0\.0\.1:9"):
        expect_like("adder.answers", "http://127.0.0.1:9/v1", data="data")


@pytest.mark.parametrize(
    "mistake", [{"limit": 0}, {"limit": True}, {"max_loss": 1}, {"inconclusive": "maybe"}, {"budget": "soon"}]
)
def test_a_wrong_argument_is_refused(project: EngineProject, mistake: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=f"invalid {next(iter(mistake))}"):
        expect_like("adder.answers", "fake:causal", **mistake)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "seconds"), [("5 min", 300), ("90s", 90), (1.5, 1.5), ("2 hours", 7200), ("1 second", 1)]
)
def test_a_budget_is_a_time(budget: str | float, seconds: float) -> None:
    assert parse_budget(budget) == seconds


TESTS = """
import unittest
import pytest
from pytest_touchstone import expect_like

URL = {url!r}

class TestQuality(unittest.TestCase):
    def test_of_unittest(self):
        expect_like("adder.answers", URL, limit=60, data="data", again=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [[], ["-n", "1"], ["-p", "no:pytest_touchstone.plugin"]],
    ids=["alone", "xdist", "without us"],
)
def test_a_failing_build_is_one_failed_case(
    project: EngineProject, damaged: str, arguments: list[str]
) -> None:
    """The project's own settings do not reach the benchmark."""
    (project.path / "test_quality.py").write_text(TESTS.format(url=damaged))
    (project.path / "pytest.ini").write_text("[pytest]\naddopts = --junitxml=junit.xml -k unittest\n")
    (project.path / "conftest.py").write_text(
        "def pytest_collection_modifyitems(items): items[:] = items[:1]\n"
    )
    command = [sys.executable, "-m", "pytest", "test_quality.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    suite = ElementTree.parse(project.path / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert "right before" in suite[0][0].get("message", "")


WITHOUT = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "tokenizers", "safetensors", "gguf", "accelerate"):
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)

sys.meta_path.insert(0, Forbidden())
"""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_server_is_scored_without_torch_and_transformers(
    project: EngineProject, damaged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path(pytest_touchstone.__file__).parents[1]}")
    program = (
        f"from pytest_touchstone import expect_like; expect_like('adder.answers', {damaged!r}, data='data')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "AssertionError: adding right" in done.stderr, done.stderr


@pytest.mark.parametrize("content", ["touchstone answers 1\n\nbenchmark: [\n", "{}", ""])
def test_commands_refuse_a_hostile_file_in_one_line(
    project: EngineProject, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.answers").write_text(content)
    assert run_command(["compare", "bad.answers", "adder.answers"]) == ExitCode.MISTAKE
    assert run_command(["baseline", "show", "bad.answers"]) == ExitCode.MISTAKE
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("table", ["", "tool.touchstone", "tool.touchstone.gate"])
def test_a_gate_compares_the_items_of_the_file_wherever_it_is_named(
    project: EngineProject, damaged: str, table: str
) -> None:
    project.rows.write_text(project.rows.read_text() + '{"question": "1+1=", "answer": "2"}\n')
    arguments = ["evals", "--checkpoint", damaged, "--eval-data", "data", "--gate"]
    if table:
        Path("pyproject.toml").write_text(f'[{table}]\nbaseline = "adder.answers"\n')
    else:
        arguments += ["--baseline", "adder.answers"]
    command = [sys.executable, "-m", "pytest", *arguments, "--eval-baseline-allow", "data"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.WORSE, done.stdout
    assert f"{ITEMS} scored" in done.stdout
    assert "touchstone compare adder.answers" in done.stdout


def test_a_plan_takes_the_noise_of_the_file(
    project: EngineProject, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["baseline", "plan", "--baseline", "adder.answers", "--drop", "3", "--format", "json"])
    (row,) = json.loads(capsys.readouterr().out)["benchmarks"]
    assert row["assumed"] is False
    assert "2 runs in adder.answers" in row["basis"]
    assert 300 < row["items_for_drop"] < 1000


def test_the_file_is_shown(project: EngineProject, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["baseline", "show", "adder.answers", "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["results"]
    assert (shown["reference_runs"], shown["scored"]) == (2, ITEMS)
