"""A run whose answers are judged by another checkpoint: as people see it, interrupted, resumed, and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pytest_touchstone.engines.judging import ask_verdicts
from pytest_touchstone.engines.transformers import TransformersFactory
from tests.support.lines import missing
from tests.support.model_server import serving
from tests.support.project import Project
from tests.support.tiny import tiny_causal

JUDGED = """
from pytest_touchstone import Generate, Judge, benchmark
from pytest_touchstone.metrics.judged import ORDER, both_orders, pair_scores

RIGHT = Judge("{question} Right? {answer}", choices=("yes", "no"))
WHICH = Judge("{first} or {second}?", choices=ORDER)


@benchmark(
    "judged", version=1, data="sums/test", asks=(Generate, Judge), judge=(RIGHT, WHICH), primary="right",
    most_unusable=1.0,
)
def test_judged(example):
    '''Whether the judge says yes, and which of two it prefers.'''
    answer = yield Generate(example["q"], max_new_tokens=4)
    verdict = yield RIGHT.about(question=example["q"], answer=answer.text)
    again = yield Generate(example["q"] + answer.text, max_new_tokens=4)
    both = yield both_orders(WHICH, answer.text, again.text)
    return {"right": verdict.verdict == "yes", **pair_scores(both)}
"""


@pytest.fixture
def judged(project: Project) -> Project:
    (project.path / "test_sums.py").write_text(JUDGED, encoding="utf-8")
    project.rows(6)
    return project


def manifest(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "run.json").read_text(encoding="utf-8")))


def summary(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))


def newest(project: Project) -> Path:
    return max(project.runs, key=lambda run: manifest(run)["began"])


def test_a_benchmark_that_asks_a_judge_does_not_begin_without_one(judged: Project) -> None:
    done = judged.run()
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: judged: *--eval-judge PATH|URL*"])
    assert not judged.runs


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=str)
def test_without_a_judge_what_asks_one_is_left_out_with_the_reason_and_the_others_run(
    judged: Project, workers: list[str]
) -> None:
    (judged.path / "test_plain.py").write_text(
        """
from pytest_touchstone import Loglikelihood, benchmark


@benchmark("plain", version=1, rows=[{"q": "1"}], asks=Loglikelihood, primary="score")
def test_plain(example):
    answer = yield Loglikelihood(example["q"], " 1")
    return {"score": 1}
""",
        encoding="utf-8",
    )
    done = judged.run(*workers)
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*judged: *--eval-judge PATH|URL*"])
    assert [result["benchmark"] for result in summary(newest(judged))["results"]] == ["plain"]


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        ("builtin:nobody", "--eval-judge: builtin:nobody: unknown*"),
        ("fake:masked", "--eval-judge fake:masked: a masked LM gives no verdicts*"),
        ("builtin:ko-mlm-tiny/*", "--eval-judge builtin:ko-mlm-tiny/[*]: names * checkpoints; name one"),
    ],
)
def test_a_judge_that_is_none_is_told_in_one_line(judged: Project, judge: str, why: str) -> None:
    done = judged.run("--eval-judge", judge)
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: {why}"])


def test_the_judge_is_named_and_its_verdicts_are_kept(judged: Project) -> None:
    done = judged.run("--eval-judge", "fake:causal")
    assert done.ret == 0
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "18 verdicts asked", "0 not given", "fake-causal judges its own")
    exchanges = judged.records["judged/0"].exchanges
    assert [one["kind"] for one in exchanges] == ["Generate", "Judge", "Generate", "Judge", "Judge"]
    assert exchanges[1]["answer"]["verdict"] in ("yes", "no")
    done = judged.pytester.run("touchstone", "score", str(newest(judged)))
    assert done.ret == 0, done.stderr.str()
    done = judged.pytester.run("touchstone", "items", str(newest(judged)), "-n", "1")
    done.stdout.fnmatch_lines(["  judge", "  verdict: *, probability 0.*"])


def test_results_of_another_judge_or_another_question_are_not_compared(judged: Project) -> None:
    judged.run("--eval-judge", "fake:causal", "--eval-run-id", "a")
    tiny_causal(judged.path / "judge", seq_len=1024)
    judged.run("--eval-judge", "judge", "--eval-run-id", "b")
    found = judged.path / "test_sums.py"
    found.write_text(JUDGED.replace("Right?", "Is it right?"), encoding="utf-8")
    judged.run("--eval-judge", "fake:causal", "--eval-run-id", "c")
    for other in ("b", "c"):
        done = judged.pytester.run("touchstone", "compare", "a", other)
        assert done.ret == 4
        done.stderr.fnmatch_lines(["*compared: judged_by*by likelihood,*and*"])
    done = judged.run(
        "--eval-judge", "fake:causal", "--gate", "--baseline", "results/b", "--eval-run-id", "d"
    )
    assert done.ret == 4
    assert "judged_by is" in done.stderr.str()
    assert not (judged.path / "results/d").exists()
    assert [summary(judged.path / "results" / name)["results"][0]["reused"] for name in "abc"] == [0, 0, 0]


def test_one_after_the_other_both_models_say_the_same_as_together(
    judged: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_causal(judged.path / "model", seq_len=256)
    judge = tiny_causal(judged.path / "judge", seed=5, seq_len=1024)
    at_once: list[int] = []

    def counted(engine: Any, requests: Any, tokens: int) -> Any:
        at_once.append(len(requests))
        return ask_verdicts(engine, requests, tokens)

    monkeypatch.setattr("pytest_touchstone.engines.judging.ask_verdicts", counted)
    arguments = ("--eval-judge", str(judge), "--eval-no-cache")
    monkeypatch.setattr(TransformersFactory, "fits", lambda *_: True)
    assert judged.run(*arguments, checkpoint=str(model)).ret == 0
    together = judged.scores()
    monkeypatch.setattr(TransformersFactory, "fits", lambda *_: False)
    assert judged.run(*arguments, checkpoint=str(model)).ret == 0
    assert judged.scores() == together
    assert at_once[2:] == [6, 12]  # each stage has all items


def test_a_killed_run_goes_on_with_the_same_judge(judged: Project) -> None:
    tiny_causal(judged.path / "model", seq_len=256)
    tiny_causal(judged.path / "judge", seed=5, seq_len=1024)
    arguments = ("--eval-judge", "judge", "--eval-set", "batch_items=2")
    first = judged.run(*arguments, "-k", "0 or 1", "--eval-run-id", "a", checkpoint="model")
    assert first.ret == 0
    judged.run(*arguments, "--eval-run-id", "b", checkpoint="model")
    assert summary(judged.path / "results" / "b")["results"][0]["reused"] == 2


@pytest.mark.slow
def test_each_worker_has_the_judge(judged: Project) -> None:
    tiny_causal(judged.path / "judge", seed=5, seq_len=1024)
    assert judged.run("--eval-judge", "judge").ret == 0
    alone = judged.scores()
    assert judged.run("--eval-judge", "judge", "-n", "2", apart=True).ret == 0
    assert judged.scores() == alone


def test_a_server_judges(judged: Project, whole: Path) -> None:
    with serving(whole, limit=1024) as server:
        done = judged.run("--eval-judge", f"{server.url}/v1")
        assert done.ret == 0, done.stdout.str()
        assert {path for path, _ in server.bodies} & {"/v1/completions"}
    record = judged.records["judged/0"]
    assert record.exchanges[1]["answer"]["logprobs"]


def test_a_server_that_scores_nothing_writes_its_verdicts(judged: Project, whole: Path) -> None:
    with serving(whole, style="openai", limit=1024) as server:
        server.silent = True
        done = judged.run("--eval-judge", f"{server.url}/v1", "--eval-set", "judge_tokens=2")
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "18 verdicts asked", "18 not given", "18 verdicts cut", "raise")
    record = judged.records["judged/0"]
    assert record.exchanges[1]["answer"] == {
        "verdict": None,
        "choices": ["yes", "no"],
        "logprobs": None,
        "text": "",
        "truncated": 0,
        "at_limit": True,
    }
    assert record.scores["right"] == 0


def test_a_judge_that_chats_ends_its_text_itself(judged: Project) -> None:
    folder = tiny_causal(judged.path / "judge", seq_len=1024)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    tokenizer.save_pretrained(folder)
    with serving(folder, style="openai", limit=1024) as server:
        done = judged.run("--eval-judge", f"{server.url}/v1", "--eval-set", "judge_tokens=3")
        assert "18 verdicts asked" in " ".join(done.stdout.str().split())
        asked = [body for path, body in server.bodies if "chat" in path and "Right?" in str(body["messages"])]
    assert asked
    assert not any("stop" in body for body in asked)
    assert {body["max_tokens"] for body in asked} == {3}
