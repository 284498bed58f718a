"""A served model of which nobody knows here whether it reasons, and what a run does once a text has shown it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.model_server import JsonHandler
from tests.support.project import Project

BENCHMARK = """
from pytest_touchstone import Generate, Turn, benchmark


@benchmark(
    name="fives", version=1, data="fives/test", asks=Generate, primary="acc", metrics=("acc", "length"),
    most_unusable=1.0,
)
def test_fives(example):
    '''Whether the text is the answer.'''
    q = example["q"]
    answer = yield Generate(q, stop=("Question:",), max_new_tokens=64, turns=(Turn("user", q),))
    return {"acc": answer.text.strip() == "#### 5", "length": len(answer.text)}
"""

PLAIN = {"plain": "#### 5", "asks": "#### 5\nQuestion: 7?", "cut": "#### 5 or so|"}
TRACES = {
    "asks first": "<think>Question: is it 7?</think>#### 5",
    "asks between": "<think>6</think>#### 7<think>Question: 7?</think>#### 5",
    "no beginning": "Question: is it 7?</think>#### 5",
    "cut off": "Two and three, so #### 7|",
}
"""The text to each question; one with a bar at its end is cut off at the limit of tokens there."""


@contextmanager
def chats(
    texts: Mapping[str, str], *, apart: bool = False, refuses: bool = False
) -> Iterator[tuple[str, list[Any]]]:
    """A server of chats that gives these texts, each up to a stop sequence, and what it is asked for. It gives
    the reasoning ``apart``; it ``refuses`` to go on without stop sequences."""
    bodies: list[Any] = []

    class Handler(JsonHandler):
        def answer(self, body: Any) -> tuple[int, Any] | None:
            if body is None:
                found = {"object": "list", "data": [{"id": "m", "object": "model"}]}
                return (200, found) if self.path.endswith("/models") else (404, {})
            if "chat" not in self.path:
                return 404, {"error": {"message": "no such endpoint"}}
            question = body["messages"][-1]["content"]
            if question in texts:
                bodies.append(body)
            if texts.get(question) == "refused" or (question in texts and refuses and "stop" not in body):
                return 400, {"error": {"message": "not so"}}
            text, bar, _ = texts.get(question, "hello").partition("|")
            text = text.partition(body.get("stop", ["\0"])[0])[0]
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if apart and text.startswith("<think>"):
                trace, _, answer = text.removeprefix("<think>").partition("</think>")
                message |= {"content": answer or None, "reasoning_content": trace}
            choice = {"index": 0, "message": message, "finish_reason": "length" if bar else "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
            return 200, {"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def fives(project: Project) -> Project:
    (project.path / "test_sums.py").write_text(BENCHMARK, encoding="utf-8")
    return project


def run(project: Project, questions: list[str], address: str, *arguments: str) -> pytest.RunResult:
    folder = project.path / "data" / "fives"
    folder.mkdir(exist_ok=True)
    rows = (json.dumps({"n": number, "q": question}) for number, question in enumerate(questions))
    (folder / "test.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return project.run(*arguments, checkpoint=address)


def answers(project: Project) -> dict[str, str]:
    """The text that was scored, by question."""
    found = {}
    for record in project.records.values():
        exchange = record.exchanges[0]
        found[exchange["request"]["prompt"]] = exchange["answer"]["samples"][0]["text"]
    return found


def stops_of(bodies: list[Any]) -> dict[str, list[bool]]:
    """Whether stop sequences were sent, each time that a question was asked."""
    sent: dict[str, list[bool]] = {}
    for body in bodies:
        sent.setdefault(body["messages"][-1]["content"], []).append("stop" in body)
    return sent


def test_a_server_that_shows_no_trace_is_asked_once_with_stops(fives: Project) -> None:
    with chats(PLAIN) as (address, bodies):
        done = run(fives, [*PLAIN], address)
    assert done.ret == 0
    assert answers(fives) == {"plain": "#### 5", "asks": "#### 5\n", "cut": "#### 5 or so"}
    assert stops_of(bodies) == {name: [True] for name in PLAIN}


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_stop_sequence_may_have_ended_in_a_trace_is_asked_again_without_any(
    fives: Project, apart: bool
) -> None:
    texts = {"plain": "#### 5", "asks": "<think>6. Question: 7?</think>#### 5", "two": TRACES["asks between"]}
    if apart:
        del texts["two"]
    with chats(texts, apart=apart) as (address, bodies):
        done = run(fives, [*texts], address)
    done.assert_outcomes(passed=len(texts))
    assert answers(fives) == dict.fromkeys(texts, "#### 5")
    assert {name: sent[-1] for name, sent in stops_of(bodies).items()} == dict.fromkeys(texts, False)
    (effort,) = fives.summary["effort"]
    assert any("no stop sequences" in note for note in effort["engine"]["notes"])


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "2", "--eval-set", "batch_items=1"), marks=pytest.mark.slow)]
)
def test_the_scores_do_not_depend_on_which_text_shows_it(
    fives: Project, order: int, workers: tuple[str, ...]
) -> None:
    texts = PLAIN | TRACES
    with chats(texts) as (address, _):
        run(fives, [*texts][::order], address, *workers)
    assert answers(fives) == {
        **dict.fromkeys(texts, "#### 5"),
        "asks": "#### 5\n",
        **dict.fromkeys(("cut", "cut off"), ""),  # another text has shown that the template opens traces
    }
    (result,) = fives.summary["results"]
    assert (result["unanswered"], result["trace_only"]) == (2, 0)


def test_a_text_is_cut_off_in_its_trace_only_where_the_template_opens_one(fives: Project) -> None:
    texts = {name: TRACES[name] for name in ("asks first", "cut off")}
    with chats(texts) as (address, _):
        run(fives, [*texts], address)
    whole = "Two and three, so #### 7"
    assert answers(fives) == {"asks first": "#### 5", "cut off": whole}


def test_with_a_named_end_nothing_is_asked_twice_and_a_text_that_is_cut_off_is_none(fives: Project) -> None:
    texts = PLAIN | TRACES
    with chats(texts) as (address, bodies):
        run(fives, [*texts], address, "--eval-set=think_end=</think>")
    assert stops_of(bodies) == {name: [False] for name in texts}
    assert {name for name, text in answers(fives).items() if not text} == {"cut", "cut off"}


def test_where_no_trace_is_looked_for_stops_are_sent_and_texts_are_scored_whole(fives: Project) -> None:
    with chats(TRACES) as (address, bodies):
        run(fives, [*TRACES], address, "--eval-set=think_end=off")
    assert stops_of(bodies) == {name: [True] for name in TRACES}
    assert answers(fives)["asks first"] == "<think>"


def test_answers_of_a_run_that_was_gone_on_with_are_asked_again_too(fives: Project) -> None:
    texts = {"no beginning": TRACES["no beginning"], "other": "refused"}
    with chats(texts) as (address, bodies):
        run(fives, [*texts], address, "--eval-run-id=first")
        texts["other"] = "<think>6</think>#### 5"
        run(fives, [*texts], address, "--eval-run-id=second")
    assert stops_of(bodies)["no beginning"] == [True, False]
    scores = {one.example: one.scores for one in latest_records(read_journal(fives.runs[1])).values()}
    assert {one["acc"] for one in scores.values()} == {1.0}


def test_what_cannot_be_asked_again_is_an_error(fives: Project) -> None:
    texts = {"asks first": TRACES["asks first"]}
    with chats(texts, refuses=True) as (address, _):
        done = run(fives, [*texts], address)
    (record,) = fives.records.values()
    assert (record.status, done.ret != 0) == ("error", True)
