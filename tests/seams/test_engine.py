"""An engine that somebody installs: found by its target, asked like any other, and never taken from the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.installed import install_package, run_pytest, touchstone
from tests.support.lines import missing

BENCHMARK = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="capitals", version=1, data="capitals/test", asks=Generate, primary="exact_match")
def test_capitals(example):
    '''Whether the answer is the capital.'''
    answer = yield Generate(example["q"], max_new_tokens=8)
    return {"exact_match": answer.samples[0].text == example["a"]}
"""
ROWS = [("France", "Paris"), ("Korea", "Seoul"), ("Italy", "Rome"), ("Spain", "Madrid")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A benchmark of four rows, and a table that knows three of them, one wrong."""
    install_package(tmp_path / "site", "dict_engine")
    (tmp_path / "test_capitals.py").write_text(BENCHMARK, encoding="utf-8")
    folder = tmp_path / "data" / "capitals"
    folder.mkdir(parents=True)
    rows = "".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in ROWS)
    (folder / "test.jsonl").write_text(rows, encoding="utf-8")
    table = {"France": "Paris", "Korea": "Seoul", "Italy": "Milan"}
    (tmp_path / "answers.json").write_text(json.dumps(table), encoding="utf-8")
    return tmp_path


def summary(project: Path) -> dict[str, Any]:
    (path,) = (project / "results").glob("*/summary.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_an_installed_engine_answers_a_benchmark(project: Path) -> None:
    target = "dict:answers.json?default=Madrid"
    for _ in range(2):  # the second run would find the first one's answers, if they were of a known model
        done = run_pytest("--checkpoint", target, packages=project / "site", cwd=project)
        assert done.returncode == 0, done.stdout
        (result,) = summary(project)["results"]
        assert (result["metrics"]["exact_match"]["value"], result.get("reused", 0)) == (0.75, 0)
        told = " ".join(done.stdout.split())
        assert not missing(told, "no fingerprint from its engine", "cache")
        for path in (project / "results").glob("*/summary.json"):
            path.rename(path.with_name("first.json"))


def test_show_knows_it_and_a_mistake_lists_what_it_takes(project: Path) -> None:
    where: dict[str, Path] = {"packages": project / "site", "cwd": project}
    shown = touchstone("checkpoint", "show", "dict:answers.json", **where)
    assert "engine             dict" in shown.stdout
    assert "answers            Generate" in shown.stdout
    assert "dict:FILE.json" in touchstone("checkpoint", "show", "dict:nowhere.json", **where).stderr
    wrong = touchstone("checkpoint", "show", "dict:answers.json?defualt=1", **where)
    assert not missing(wrong.stderr, "no option 'defualt'", "default:")
    unknown = touchstone("checkpoint", "show", "dcit:answers.json", **where)
    assert unknown.returncode == 4
    assert not missing(
        unknown.stderr, "dict:, fake:, http://, https://, hub:", "llama-server:, sglang:, vllm:"
    )


def test_one_table_with_other_options_is_another_checkpoint(project: Path) -> None:
    targets = (
        "--checkpoint",
        "dict:answers.json?default=Madrid",
        "--checkpoint",
        "dict:answers.json?default=",
    )
    done = run_pytest(*targets, packages=project / "site", cwd=project)
    found = {one["checkpoint"]: one["metrics"]["exact_match"]["value"] for one in summary(project)["results"]}
    assert (done.returncode, found) == (0, {"answers": 0.75, "answers-2": 0.5})


def test_a_package_that_cannot_be_loaded_is_named_in_one_line(project: Path) -> None:
    (project / "site" / "dict_engine.py").write_text("import nothing_of_that_name", encoding="utf-8")
    done = touchstone("checkpoint", "show", "dict:answers.json", packages=project / "site", cwd=project)
    assert done.returncode == 4
    assert not missing(done.stderr, "dict_engine:DictFactory", "touchstone.engines", "cannot be loaded")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("(EngineFactory)", "dict_engine.DictFactory, of group touchstone.engines, is no EngineFactory"),
        ("(Engine)", "the engine 'dict' made a DictEngine, which is no Engine"),
    ],
)
def test_a_class_that_does_not_derive_from_ours_is_named_in_one_line(
    project: Path, base: str, told: str
) -> None:
    path = project / "site" / "dict_engine.py"
    path.write_text(path.read_text(encoding="utf-8").replace(base, ""), encoding="utf-8")
    done = run_pytest("--checkpoint", "dict:answers.json", packages=project / "site", cwd=project)
    assert done.returncode != 0
    assert told in " ".join((done.stderr + done.stdout).split())
    assert "Traceback" not in done.stderr + done.stdout
