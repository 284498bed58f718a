"""A run has the same records in one process, by replicas, in merged shards, and by workers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.project import Project
from tests.support.tiny import tiny_causal

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4
"""Log-probabilities of float32 in batches of other shapes differ by less."""

TEXTS = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="says", version=1, data="sums/test", asks=Generate, primary="long")
def test_says(example):
    '''What comes after a sum.'''
    answer = yield Generate("and " * (example["n"] % 7) + example["q"], max_new_tokens=6)
    return {"long": len(answer.text), "sum": sum(map(ord, answer.text))}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster with as many CPUs as there are replicas at most."""
    ray = pytest.importorskip("ray", reason="the package ray is not installed")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def numbers_and_rest(value: Any) -> tuple[list[float], Any]:
    """Split plain data into its floating-point numbers and all else."""
    if isinstance(value, float):
        return [value], "number"
    if isinstance(value, dict):
        parts = [(name, numbers_and_rest(one)) for name, one in sorted(value.items())]
        return [n for _, (found, _) in parts for n in found], {name: rest for name, (_, rest) in parts}
    if isinstance(value, (list, tuple)):
        several = [numbers_and_rest(one) for one in value]
        return [n for found, _ in several for n in found], [rest for _, rest in several]
    return [], value


def by_item(folder: Path) -> dict[str, Any]:
    return {
        name: (one.status, one.scores, one.exchanges)
        for name, one in latest_records(read_journal(folder)).items()
    }


def check_same(found: dict[str, Any], right: dict[str, Any]) -> None:
    assert found.keys() == right.keys()
    numbers, rest = numbers_and_rest([found[name] for name in sorted(found)])
    others, same = numbers_and_rest([right[name] for name in sorted(right)])
    assert rest == same
    assert all(math.isclose(a, b, abs_tol=TOLERANCE) for a, b in zip(numbers, others, strict=True))


def test_records_are_the_same_in_one_process_by_replicas_in_shards_and_by_workers(
    project: Project, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cluster
    monkeypatch.chdir(project.path)
    model = str(tiny_causal(project.path / "model", seed=0))
    rows = ({"n": n, "q": f"{n}+1=", "options": [str(n + 1), str(n)]} for n in range(40))
    (project.path / "data" / "sums" / "test.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    (project.path / "test_says.py").write_text(TEXTS, encoding="utf-8")

    def run(name: str, *options: str, apart: bool = False) -> Path:
        done = project.run(
            *("--eval-run-id", name, "--eval-no-cache", "--eval-device", "cpu"),
            *options,
            checkpoint=model,
            apart=apart,
        )
        assert done.ret == 0, name
        return project.path / "results" / name

    right = by_item(run("alone"))
    assert len(right) == 80
    for count in (1, 2, 4):
        check_same(by_item(run(f"ray{count}", "--eval-engine", f"ray:{count}")), right)
    for number in (1, 2, 3):
        run("part", "--eval-shard", f"{number}/3")
    parts = sorted(str(path) for path in (project.path / "results").glob("part*"))
    assert main(["merge", *parts, "-o", "whole"]) == 0
    check_same(by_item(project.path / "whole"), right)
    check_same(by_item(run("workers", "-n", "2", apart=True)), right)


def test_a_series_has_the_same_records_by_replicas(
    project: Project, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cluster
    monkeypatch.chdir(project.path)
    for step in (1, 2, 3):
        tiny_causal(project.path / "runs" / f"checkpoint-{step}", seed=step)
    project.rows(40)
    options = ("--eval-no-cache", "--eval-device", "cpu", "--eval-set", "batch_items=16")
    found = {}
    for name, engine in (("alone", ()), ("ray", ("--eval-engine", "ray:2"))):
        done = project.run("--eval-run-id", name, *options, *engine, checkpoint="runs")
        assert done.ret == 0
        found[name] = by_item(project.path / "results" / name)
    assert len(found["ray"]) == 120
    check_same(found["ray"], found["alone"])
