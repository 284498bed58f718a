"""A run without a checkpoint and a limit is the demonstration, and exactly what its options would be by hand."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from tests.support.lines import missing
from tests.support.tiny import tiny_causal

Project = Any

TEXTS = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="{name}", version=1, data="sums/test", asks=Generate, primary="length")
def test_{name}(example):
    answer = yield Generate(example["q"], max_new_tokens=20)
    return {{"length": answer.samples[0].tokens}}
"""

TABLE = """
[sums]
limit = 3
max_new_tokens = 2

[other]
left_out = "it takes too long"
"""


@pytest.fixture
def demonstrated(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A project whose benchmarks are the shipped ones, and the only builtin checkpoint."""
    folder = tiny_causal(tmp_path_factory.mktemp("tiny") / "tiny")
    monkeypatch.setattr("pytest_touchstone.core.eval_config.shipped_evals", lambda: project.path)
    module = importlib.import_module("pytest_touchstone.checkpoints.resolve")  # a function has its name
    monkeypatch.setattr(
        module, "default_checkpoints", lambda seq_len=None: resolve(str(folder), seq_len=seq_len)
    )
    (project.path / "demonstration.toml").write_text(TABLE)
    for name in ("sums", "other", "mine"):
        (project.path / f"test_{name}.py").write_text(TEXTS.format(name=name))
    return Path(folder)


def texts(project: Project) -> dict[str, float]:
    return {example: scores["length"] for example, scores in project.scores().items()}


def run_of(project: Project) -> Path:
    """The folder of the only run."""
    (folder,) = project.runs
    return Path(folder)


def manifest_of(project: Project) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((run_of(project) / "run.json").read_text())
    return manifest


def test_a_run_without_checkpoint_and_limit_is_the_demonstration(
    project: Project, demonstrated: Path
) -> None:
    result = project.run(checkpoint="")
    assert result.ret == 0
    out = result.stdout.str()
    assert not missing(out, "demonstration", "builtin checkpoints", "3 rows")
    assert not missing(out, "left out other", "--eval-limit all")
    manifest = manifest_of(project)
    assert manifest["benchmarks"]["sums"]["settings"] == {"limit": 3, "max_new_tokens": 2}
    assert "settings" not in manifest["benchmarks"]["mine"]
    assert "3 rows" in manifest["demonstration"]["what"]
    found = texts(project)
    assert sum(example.startswith("sums/") for example in found) == 3
    assert max(length for example, length in found.items() if example.startswith("sums/")) == 2
    assert sum(example.startswith("mine/") for example in found) == 20


@pytest.mark.parametrize(
    ("options", "count"),
    [(["--eval-limit", "all"], 20), (["--eval-limit", "4"], 4)],
    ids=["all", "4"],
)
def test_a_limit_by_hand_ends_the_demonstration(
    options: list[str], count: int, project: Project, demonstrated: Path
) -> None:
    result = project.run("test_sums.py", *options, checkpoint="")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*demonstration on the builtin*")
    assert "demonstration" not in manifest_of(project)
    found = texts(project)
    assert len(found) == count
    assert max(found.values()) > 2


def test_the_demonstration_is_the_run_with_the_same_options_by_hand(
    project: Project, demonstrated: Path
) -> None:
    assert project.run("test_sums.py", checkpoint="").ret == 0
    demonstration = run_of(project).name
    same = ["--eval-limit", "3", "--eval-max-new-tokens", "2", "--eval-run-id"]
    assert project.run("test_sums.py", *same, "same", checkpoint=str(demonstrated)).ret == 0
    assert (
        project.run("test_sums.py", *same[:2], "--eval-run-id", "full", checkpoint=str(demonstrated)).ret == 0
    )
    reused = {}
    for name in ("same", "full"):
        summary = json.loads((project.path / "results" / name / "summary.json").read_text())
        reused[name] = [result["reused"] for result in summary["results"]]
    assert reused == {"same": [3], "full": [0]}
    saved = [json.loads(path.read_text()) for path in (project.path / "results" / "saved").rglob("*.json")]
    conditions = {one["run_id"]: one["conditions"] for one in saved if one.get("kind") == "saved"}
    assert conditions[demonstration] == conditions["same"] != conditions["full"]


def test_a_benchmark_that_is_left_out_says_so_where_it_alone_is_asked(
    project: Project, demonstrated: Path
) -> None:
    result = project.run("test_other.py", checkpoint="")
    assert result.ret == 5
    result.stdout.fnmatch_lines(["left out    other: *--eval-limit all"])


def test_texts_of_two_benchmarks_are_asked_for_together(
    project: Project, demonstrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.engines.transformers.causal import CausalEngine

    asked: list[int] = []
    right = CausalEngine.answer

    def answer(self: CausalEngine, requests: Any, done: Any) -> Any:
        asked.append(len(requests))
        return right(self, requests, done)

    monkeypatch.setattr(CausalEngine, "answer", answer)
    options = ["--eval-limit", "5", "--eval-no-cache"]
    assert project.run(*options, checkpoint="").ret == 0
    together = texts(project)
    assert asked == [15]
    assert (
        project.run(*options, "--eval-set", "batch_items=5", "--eval-run-id", "apart", checkpoint="").ret == 0
    )
    assert asked[:2] == [15, 5]
    assert len(asked) == 4
    assert max(asked[2:]) <= 5  # texts that have ended beside an earlier batch are not waited for again
    lines = (project.path / "results" / "apart" / "items" / "items-main.jsonl").read_text().splitlines()
    apart = {record["example"]: record["scores"]["length"] for record in map(json.loads, lines)}
    assert apart == together


@pytest.mark.parametrize("arguments", [(), ("-n", "2"), ("--eval-limit", "3")])
def test_own_benchmarks_are_skipped_where_no_checkpoint_is_given(
    project: Project, arguments: tuple[str, ...]
) -> None:
    (project.path / "test_plain.py").write_text("def test_plain():\n    assert True\n")
    result = project.run(*arguments, checkpoint="")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["skipped sums: *--checkpoint PATH"])
    assert not project.runs


@pytest.mark.parametrize("option", ["--gate", "--eval-dry-run"])
def test_what_needs_scores_is_a_mistake_without_a_checkpoint(project: Project, option: str) -> None:
    result = project.run(option, checkpoint="")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: sums: *--checkpoint PATH"])


def test_an_item_by_its_id_is_skipped_too(project: Project) -> None:
    project.run("test_sums.py::test_sums[sums/3]", checkpoint="").assert_outcomes(skipped=1)
