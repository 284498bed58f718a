"""A run of a served model: what it says of itself, what is left out, and what is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.engines.http import engine, managed_servers
from tests.support.lines import missing
from tests.support.model_server import ModelServer, gone, install, serving, starts
from tests.support.project import Project

KEY = "sk-0123456789abcdef"

SAYING = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="says", version=1, data="sums/test", asks=Generate, primary="acc", most_unusable=1.0)
def test_says(example):
    '''Whether a text says anything.'''
    answer = yield Generate(example["q"], max_new_tokens=4)
    return {"acc": bool(answer.text)}
"""


def run(project: Project, server: ModelServer, *arguments: str) -> pytest.RunResult:
    return project.run(*arguments, checkpoint=f"{server.url}/v1")


def summary(project: Project) -> dict[str, Any]:
    newest = max(project.runs, key=lambda path: json.loads((path / "run.json").read_text())["began"])
    return dict(json.loads((newest / "summary.json").read_text(encoding="utf-8")))


def test_a_served_model_is_scored_counted_and_not_taken_from_the_cache(
    project: Project, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(whole) as server:
        done = run(project, server, "--eval-set", "price=0.5,2", "-v")
        assert done.ret == 0
        assert {one["Authorization"] for one in server.headers} == {f"Bearer {KEY}"}
        told = " ".join(done.stdout.str().split())
        assert "served by vLLM 0.32.0" in told
        assert "a weak fingerprint" in told
        found = summary(project)
        (row,) = found["checkpoints"]
        assert row["series"] is None
        assert row["fingerprint"].startswith("weak-")
        assert (row["served"]["model"], row["served"]["system_fingerprint"]) == ("tiny", "fp-1")
        (cost,) = [one["engine"] for one in found["effort"]]
        assert cost["cost"] == (cost["prompt_tokens"] * 0.5 + cost["completion_tokens"] * 2) / 1e6
        assert f"{cost['prompt_tokens']:,} prompt and {cost['completion_tokens']:,} new tokens" in told
        run(project, server)
        assert summary(project)["results"][0]["reused"] == 0
        run(project, server, "--eval-set=reuse_served")
        assert summary(project)["results"][0]["reused"] == 20
        broken = run(project, server, "--eval-set", "tokenizer=nowhere")
        assert broken.ret == 4
    with serving(whole, leaks=30) as server:
        refused = run(project, server)
        assert refused.ret == 9
        assert "[OPENAI_API_KEY]" in refused.stdout.str()
    outputs = [text.str() for one in (done, broken, refused) for text in (one.stdout, one.stderr)]
    files = [path.read_bytes() for path in project.path.rglob("*") if path.is_file()]
    assert not any(KEY in text for text in outputs)
    assert not any(KEY.encode() in content for content in files)


def test_answers_that_change_meanwhile_are_not_valid(project: Project, whole: Path) -> None:
    with serving(whole, wanders=30) as server:
        done = run(project, server, "--eval-strict")
    (result,) = summary(project)["results"]
    assert "a known text" in result["invalid"]
    assert done.ret == 9
    done.stdout.fnmatch_lines(["*sums*NOT VALID*"])


def test_a_run_that_was_stopped_is_gone_on_with(project: Project, whole: Path) -> None:
    project.write("if example['n'] == 3: raise RuntimeError('stop here')")
    with serving(whole) as server:
        run(project, server)
        run(project, server)
        assert summary(project)["results"][0]["reused"] == 19


def test_what_a_server_cannot_answer_is_left_out_before_the_first_item(project: Project, whole: Path) -> None:
    (project.path / "test_says.py").write_text(SAYING, encoding="utf-8")
    with serving(whole, style="llama.cpp", silent=True) as server:
        listed = run(project, server, "--co", "-q")
        told = " ".join(listed.stdout.str().split())
        assert not missing(told, "deselected sums", "Loglikelihood", "llama.cpp ignores echo")
        done = run(project, server)
    assert done.ret == 0
    (result,) = summary(project)["results"]
    assert (result["name"], result["unanswered"], result["answered"]["n"]) == ("says", 20, 0)
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "no answer (limit)", "20 of 20 outputs")
    assert not missing(told, "acc 0.0000 over", "all 20 items", "none over the 0")


def test_an_option_of_served_models_without_one_is_a_mistake(project: Project) -> None:
    done = project.run("--eval-set", "model_name=x")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["*--eval-set model_name=x: *served*"])


@pytest.mark.slow
def test_workers_ask_with_what_the_controller_has_found(project: Project, whole: Path) -> None:
    with serving(whole) as server:
        done = run(project, server, "-n", "2")
        assert done.ret == 0
        assert server.gets.count("/v1/models") == 1


@pytest.mark.slow
def test_a_server_that_goes_away_ends_the_run_and_the_same_command_goes_on(
    project: Project, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GONE_SECONDS", 0.5)
    how = ("--eval-concurrency", "1", "--eval-set", "batch_items=4")
    with serving(whole, dies=30) as server:
        done = run(project, server, *how)
        assert done.ret == 2
        assert "the same command goes on" in done.stdout.str()
        (result,) = summary(project)["results"]
        assert result["errors"] == 0
        assert 0 < result["scored"] < 20
        assert result["scored"] + result["lost"] == 20
        server.dies = None
        again = run(project, server, *how)
    assert again.ret == 0
    (whole_result,) = summary(project)["results"]
    assert (whole_result["scored"], whole_result["reused"]) == (20, result["scored"])


@pytest.fixture
def notes(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notes of a small server called vllm on PATH."""
    found = install(project.path, "vllm")
    monkeypatch.setenv("PATH", f"{project.path}:/usr/bin:/bin")
    monkeypatch.setenv("MODEL_SERVER_NOTES", str(found))
    return found


def test_a_run_starts_its_server_and_ends_it(
    project: Project, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_servers, "SILENT_SECONDS", -1.0)
    (project.path / "model").mkdir()
    done = project.run("--eval-set", "server_args=--seed 7", checkpoint="vllm:model")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["vllm is starting; *.log"])
    (start,) = starts(notes)
    assert start["arguments"][-2:] == ["--seed", "7"]
    assert gone(start["pids"], 0)
    (row,) = summary(project)["checkpoints"]
    assert (row["name"], row["served"]["child"], row["source"]) == ("model-vllm", "vllm", "vllm:model")
    (log,) = project.runs[0].glob("details/vllm-*.log")
    assert "loading the model" in log.read_text(encoding="utf-8")
    mistaken = project.run("--eval-set", "server_args=--seed 7")
    assert mistaken.ret == 4
    mistaken.stderr.fnmatch_lines(["*--eval-set server_args=--seed 7: *server*"])


@pytest.mark.slow
def test_ctrl_c_ends_the_server_of_a_run_after_what_is_under_way(project: Project, notes: Path) -> None:
    (project.path / "model").mkdir()
    project.write("import os, signal; example['n'] == 3 and os.kill(os.getpid(), signal.SIGINT)")
    done = project.run(checkpoint="vllm:model", apart=True)
    assert done.ret == 2
    (start,) = starts(notes)
    assert gone(start["pids"], 0)


@pytest.mark.slow
def test_workers_share_the_server_that_a_run_starts(project: Project, notes: Path) -> None:
    (project.path / "model").mkdir()
    done = project.run("-n", "2", checkpoint="vllm:model")
    assert done.ret == 0
    (start,) = starts(notes)
    assert gone(start["pids"], 0)
    assert summary(project)["results"][0]["scored"] == 20
