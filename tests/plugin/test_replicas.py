"""Runs by replicas of a played Ray, and of a real one: reports in pytest's order, results as in one process."""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.engines.replicas.engine import Replicas
from pytest_touchstone.engines.replicas.replica import LoadOutcome, Replica, WantedCheckpoint
from pytest_touchstone.engines.sandbox import open_checked
from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.project import Project
from tests.support.ray_nodes import Cluster, kill_actor, noting
from tests.support.sandbox_here import opened_here
from tests.support.simulated_ray import KillsProcessError, SimulatedRay
from tests.support.tiny import tiny_causal

FIXTURE = """
import pytest


@pytest.fixture(scope="module")
def word():
    return " and"
"""

WITH_A_FIXTURE = """
from pytest_touchstone import Loglikelihood, benchmark


@benchmark(name="words", version=1, data="sums/test", asks=Loglikelihood, primary="margin")
def test_words(example, word):
    '''How likely a word of a fixture is.'''
    answer = yield Loglikelihood(example["q"], word)
    return {"margin": answer.logprob}
"""


PROGRAMS = """
from pytest_touchstone import CallTests, Generate, RunProgram, benchmark


@benchmark(name="codes", version=1, data="sums/test", asks=(Generate, RunProgram), primary="passed")
def test_codes(example):
    '''A program after a text.'''
    text = yield Generate(example["q"], max_new_tokens=3)
    tests = CallTests(f"assert f() == {example['n'] % 2}", names=("f",))
    found = yield RunProgram("def f(): return 1", tests, task=str(example["n"]))
    return {"passed": found.outcome == "passed", "length": len(text.text)}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [tiny_causal(folder / f"m{seed}", seed=seed) for seed in range(4)]


@pytest.fixture
def series(models: list[Path], project: Project) -> Path:
    """A series of four checkpoints."""
    folder: Path = project.path / "runs" / "a"
    for model, step in zip(models, (1, 2, 3, 4), strict=True):
        shutil.copytree(model, folder / f"checkpoint-{step}")
    return folder


class Loads:
    """A played Ray, and what was loaded: the checkpoint's name, once for each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = SimulatedRay([1, 1])
        self.names: list[str] = []
        self.dies_of: str | None = None
        loads = self

        class Telling(Replica):
            def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
                loads.names.append(str(wanted.row["name"]))
                if loads.names[-1] == loads.dies_of:
                    raise KillsProcessError
                return super().load(wanted, files)

        monkeypatch.setattr("pytest_touchstone.engines.replicas.engine.start", lambda target: self.cluster)
        monkeypatch.setattr(
            "pytest_touchstone.engines.replicas.engine.Replicas", functools.partial(Replicas, kind=Telling)
        )


def by_item(folder: Path) -> dict[str, Any]:
    records = list(read_journal(folder))
    assert set(Counter(one.item for one in records).values()) == {1}
    return {name: (one.status, one.scores) for name, one in latest_records(records).items()}


def ran(result: pytest.RunResult) -> list[str]:
    """The items in the order of their reports; one that a line of progress follows stands there twice."""
    files = ("test_sums.py::", "test_words.py::", "test_codes.py::")
    return list(dict.fromkeys(line.split()[0] for line in result.outlines if line.startswith(files)))


def check_as_in_one_process(project: Project, *arguments: str, ray: str = "ray:2") -> pytest.RunResult:
    alone = project.run("-v", "--eval-run-id", "alone", "--eval-no-cache", *arguments, checkpoint="runs/a")
    found = project.run(
        *("-v", "--eval-run-id", "ray", "--eval-no-cache", "--eval-engine", ray),
        *arguments,
        checkpoint="runs/a",
    )
    assert found.ret == alone.ret
    assert ran(found) == ran(alone)
    mine, right = (by_item(project.path / "results" / name) for name in ("ray", "alone"))
    assert mine.keys() == right.keys()
    for name, (status, scores) in mine.items():
        assert status == right[name][0]
        assert scores == pytest.approx(right[name][1], abs=1e-4)
    return found


def test_a_series_is_scored_as_in_one_process(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(monkeypatch)
    check_as_in_one_process(project, "--eval-set", "batch_items=7")
    assert set(loads.names) == {f"checkpoint-{step}" for step in (1, 2, 3, 4)}
    assert len(loads.names) <= 8  # by each replica once


@pytest.mark.slow
def test_items_with_fixtures_are_run_among_the_others(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "conftest.py").write_text(FIXTURE)
    (project.path / "test_words.py").write_text(WITH_A_FIXTURE)
    loads = Loads(monkeypatch)
    check_as_in_one_process(project, "--eval-set", "batch_items=7")
    assert Counter(loads.names).total() <= 8


def test_a_checkpoint_that_kills_its_replicas_keeps_no_other_from_being_scored(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(monkeypatch)
    loads.dies_of = "checkpoint-2"
    result = project.run("--eval-engine", "ray:2", checkpoint="runs/a")
    assert result.ret == 9
    result.stdout.fnmatch_lines(["*checkpoint-2: no replica *3 times*"])
    scored = {one["checkpoint"]: one["scored"] for one in project.summary["results"]}
    assert scored == {"checkpoint-1": 20, "checkpoint-2": 0, "checkpoint-3": 20, "checkpoint-4": 20}


def test_a_run_that_was_stopped_by_a_failure_goes_on_where_it_was(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("assert example['n'] != 3")
    Loads(monkeypatch)
    first = project.run("-x", "-v", "--eval-engine", "ray:2", checkpoint="runs/a")
    assert first.ret == 9
    assert len(ran(first)) == 4
    project.write()
    right = project.run("--eval-run-id", "right", "--eval-no-cache", checkpoint="runs/a")
    assert right.ret == 0
    again = project.run("-v", "--eval-run-id", "again", "--eval-engine", "ray:2", checkpoint="runs/a")
    assert again.ret == 0
    mine, others = (by_item(project.path / "results" / name) for name in ("again", "right"))
    assert mine.keys() == others.keys()
    for name, (_, scores) in mine.items():
        assert scores == pytest.approx(others[name][1], abs=1e-4)


@pytest.mark.slow
def test_a_hook_that_skips_an_item_has_the_last_word(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "conftest.py").write_text(
        "import pytest\n\n\ndef pytest_runtest_setup(item):\n"
        "    if 'checkpoint-3' in item.nodeid and item.nodeid.endswith('/5]'):\n        pytest.skip('no')\n"
    )
    Loads(monkeypatch)
    project.run("--eval-run-id", "ray", "--eval-engine", "ray:2", checkpoint="runs/a")
    found = by_item(project.path / "results" / "ray")
    assert len(found) == 80


@pytest.mark.slow
def test_programs_run_while_replicas_are_asked(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_here(workers=1).close()
    monkeypatch.setattr(
        "pytest_touchstone.engines.replicas.programs.open_on_nodes",
        lambda settings, target, say: open_checked(settings),
    )
    (project.path / "test_codes.py").write_text(PROGRAMS)
    Loads(monkeypatch)
    check_as_in_one_process(project, "--eval-set", "batch_items=7")


def test_a_run_whose_nodes_are_gone_ends_with_a_line_and_goes_on_by_the_same_command(
    project: Project, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Loads(monkeypatch).cluster
    for node in list(cluster.machines):
        cluster.later(9, lambda node=node: cluster.kill_node(node))  # type: ignore[misc]
    first = project.run("--eval-run-id", "first", "--eval-engine", "ray:2", checkpoint="runs/a")
    assert first.ret != 0
    assert "no node of Ray's cluster" in first.stdout.str() + first.stderr.str()
    kept = [status for status, _ in by_item(project.path / "results" / "first").values()]
    assert 0 < kept.count("scored") < 80
    Loads(monkeypatch)
    assert project.run("--eval-run-id", "again", "--eval-engine", "ray:2", checkpoint="runs/a").ret == 0
    assert len(by_item(project.path / "results" / "again")) == 80


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with closing(Cluster()) as running:
        yield running


@pytest.mark.slow
def test_a_run_loses_no_score_when_an_actor_and_then_a_node_die_in_the_middle(
    cluster: Cluster, project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (notes := tmp_path / "notes").mkdir()
    kind = noting(notes, pause=0.3)
    monkeypatch.setattr(
        "pytest_touchstone.engines.replicas.engine.Replicas", functools.partial(Replicas, kind=kind)
    )
    monkeypatch.setattr("pytest_touchstone.engines.replicas.engine.LEAST", 100.0)  # many units
    for step in (1, 2):
        tiny_causal(project.path / "runs" / f"checkpoint-{step}", seed=step)
    project.rows(1500)
    journal = project.path / "results" / "ray" / "items" / "items-main.jsonl"

    def kill() -> None:
        while not (journal.is_file() and journal.stat().st_size):
            time.sleep(0.01)
        kill_actor(notes)
        time.sleep(0.5)
        cluster.kill_node(0)

    options = ("--eval-no-cache", "--eval-device", "cpu")
    killing = threading.Thread(target=kill)
    killing.start()
    ended = project.run("--eval-run-id", "ray", "--eval-engine", "ray:2", *options, checkpoint="runs")
    killing.join()
    assert ended.ret == 0
    assert project.run("--eval-run-id", "alone", *options, checkpoint="runs").ret == 0
    found, right = (list(read_journal(project.path / "results" / name)) for name in ("ray", "alone"))
    assert set(Counter(record.item for record in found).values()) == {1}
    scores = {record.item: record.scores for record in right}
    assert len(found) == len(scores) == 3000
    for record in found:
        assert record.status == "scored"
        assert record.scores == pytest.approx(scores[record.item], abs=1e-4)
    effort = project.path / "results" / "ray" / "details" / "effort-main.json"
    assert '"deaths": ' in effort.read_text(encoding="utf-8")
