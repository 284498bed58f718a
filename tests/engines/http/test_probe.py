"""What a probe finds out about servers of several kinds, and about those that must not be believed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Loglikelihood, RollingLoglikelihood
from pytest_touchstone.engines.http.calls import CallFailure
from pytest_touchstone.engines.http.capabilities import capabilities_from_plain
from pytest_touchstone.engines.http.probe import Probe, ProbedServer
from pytest_touchstone.engines.http.server import parse_address
from pytest_touchstone.engines.http.tokens import PROBE_TEXT, tokenizer_by_name
from pytest_touchstone.engines.transformers.tokenizer import TokenPair
from tests.support.lines import naming
from tests.support.model_server import ModelServer

BOTH = (Loglikelihood, RollingLoglikelihood, Generate)


def probed(
    server: ModelServer, place: str = "", model: str | None = None, tokenizer: str | None = ""
) -> ProbedServer:
    """What is found; the tokenizer is the model's own unless another is given."""
    probe = Probe(parse_address(f"http://h:8000{place}"), server.ask)
    return probe.run(model, str(server.folder) if tokenizer == "" else tokenizer)


def test_vllm_gives_scores_of_prompts_and_of_next_tokens(whole: Path) -> None:
    found = probed(ModelServer(whole), tokenizer=None)
    can = found.abilities
    assert can.serves == BOTH
    assert (can.scoring, can.choices, can.token_ids, can.several, can.stops) == (
        *("prompt_logprobs", True, True, True),
        None,
    )
    assert (found.server, found.version, found.limit, found.fingerprint) == ("vLLM", "0.32.0", 128, "fp-1")
    assert found.tokens is not None
    assert found.tokens.name == str(whole)


@pytest.mark.parametrize(
    ("how", "block"), [({"block": 16}, 16), ({}, 0), ({"block": 16, "style": "openai"}, 0)]
)
def test_vllm_tells_of_its_prefix_cache(whole: Path, how: dict[str, Any], block: int) -> None:
    assert probed(ModelServer(whole, **how)).abilities.block == block


@pytest.mark.parametrize(
    ("told", "words"), [(True, ["is on"]), (False, ["is off"]), (None, []), ("yes", []), ({}, [])]
)
def test_vllm_tells_of_its_batch_invariant_mode(whole: Path, told: Any, words: list[str]) -> None:
    notes = [note for note in probed(ModelServer(whole, batch_invariant=told)).notes if "INVARIANT" in note]
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_an_unknown_server_gives_scores_by_echo(whole: Path) -> None:
    found = probed(ModelServer(whole, style="openai"))
    assert (found.abilities.scoring, found.abilities.stops, found.limit) == ("echo", 4, None)
    assert not found.abilities.choices


def test_a_server_that_ignores_echo_is_refused_for_scores_and_named(whole: Path) -> None:
    found = probed(ModelServer(whole, style="llama.cpp"))
    assert found.abilities.serves == (Generate,)
    assert found.abilities.why.startswith("llama.cpp ignores echo: ")
    assert (found.version, found.limit, found.abilities.several) == ("b6000-abc", 128, False)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"zeros": True}, "are 0, so the server has not computed them"),
        ({"shift": -1.5}, "it has just drawn the log-probability"),
        ({"more_start": True}, "counts"),
    ],
)
@pytest.mark.parametrize("style", ["vllm", "openai"])
def test_scores_that_are_wrong_are_refused_before_anything_is_asked(
    whole: Path, how: dict[str, Any], why: str, style: Any
) -> None:
    found = probed(ModelServer(whole, style=style, **how))
    assert found.abilities.serves == (Generate,)
    assert why in found.abilities.why


def test_without_a_tokenizer_only_texts_can_be_asked_for(whole: Path) -> None:
    found = probed(ModelServer(whole, style="openai"), tokenizer=None)
    assert (found.tokens, found.abilities.serves) == (None, (Generate,))
    assert "--eval-set tokenizer=PATH" in found.abilities.why


def test_a_server_tokenizer_is_used_where_the_files_are_not_here(whole: Path) -> None:
    found = probed(ModelServer(whole, root=False), tokenizer=None)
    assert found.tokens is not None
    assert (found.tokens.name, found.abilities.serves) == ("/tokenize", (Loglikelihood, Generate))
    assert "begin a text with" in found.abilities.why


def test_a_tokenizer_of_another_model_is_noted(whole: Path) -> None:
    found = probed(ModelServer(whole), tokenizer="builtin:mtp-tiny")
    assert any("it may be another model's" in note for note in found.notes)


def test_the_model_must_be_named_among_several(whole: Path) -> None:
    server = ModelServer(whole, names=("small", "large"))
    with pytest.raises(CheckpointError, match="2 models; choose one"):
        probed(server)
    assert probed(server, model="large").model == "large"


def test_a_server_that_answers_nothing_is_refused_in_one_line(whole: Path) -> None:
    with pytest.raises(CheckpointError, match="answers neither completions nor chats"):
        probed(ModelServer(whole), "/v1/chat/completions")  # it has no chat template

    def gone(path: str, body: Any) -> CallFailure:
        return CallFailure("connection refused", "gone")

    with pytest.raises(CheckpointError, match="connection refused; start the server"):
        Probe(parse_address("http://h:8000"), gone).run(None, None)

    def wants_a_key(path: str, body: Any) -> CallFailure:
        return CallFailure("the server answered 401", "refused", 401)

    with pytest.raises(CheckpointError, match="OPENAI_API_KEY"):
        Probe(parse_address("http://h:8000"), wants_a_key).run(None, None)


@pytest.mark.parametrize(
    "failure",
    [
        CallFailure("HTTP 429 (too many requests); the server asks to wait 900 s", "limited", 429),
        CallFailure("HTTP 503 (service unavailable), after 3 attempts", "server", 503),
        CallFailure("no reply within 120 s, after 3 attempts", "deadline"),
        CallFailure("connection refused", "gone"),
    ],
    ids=lambda failure: failure.kind,
)
@pytest.mark.parametrize("known", [0, 1, 3, 5, 8])
def test_a_server_that_is_busy_or_goes_away_during_the_probe_is_not_one_that_cannot(
    whole: Path, failure: CallFailure, known: int
) -> None:
    server = ModelServer(whole)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        return server.ask(path, body) if len(server.gets) + len(server.bodies) < known else failure

    with pytest.raises(CheckpointError) as raised:
        Probe(parse_address("http://h:8000"), ask).run(None, str(whole))
    assert failure.reason in str(raised.value)


def test_a_server_that_breaks_off_what_it_does_not_understand_is_asked_for_the_rest(whole: Path) -> None:
    server = ModelServer(whole, style="openai")

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        if body is not None and isinstance(body.get("prompt"), list):
            return CallFailure("the connection broke before the reply", "gone")
        return server.ask(path, body)

    found = Probe(parse_address("http://h:8000"), ask).run(None, str(whole))
    assert found.abilities.serves == (Generate,)
    assert naming("token ids", "the connection broke").search(found.abilities.why)


def test_a_reply_without_choices_is_no_ability(whole: Path) -> None:
    server = ModelServer(whole)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        return {"error": "no such thing"} if path.endswith("completions") else server.ask(path, body)

    with pytest.raises(CheckpointError, match=r"completions: .*choices; chats: .*choices"):
        Probe(parse_address("http://h:8000"), ask).run(None, str(whole))


def test_chats_that_begin_twice_are_refused_and_an_address_of_chats_alone_with_them(
    whole: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(whole)
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    tokens = len(tokenizer.encode("Hi", add_special_tokens=False)) + 2
    server = ModelServer(whole)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        if not path.endswith("/chat/completions"):
            return server.ask(path, body)
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
        return {"model": "tiny", "choices": [choice], "usage": {"prompt_tokens": tokens}}

    found = Probe(parse_address("http://h:8000"), ask).run(None, str(tmp_path))
    assert (found.abilities.chat, found.abilities.serves) == (False, BOTH)
    assert any("two beginning-of-sequence tokens" in note for note in found.notes)
    with pytest.raises(CheckpointError, match=naming("v1", "chats", "two beginning-of-sequence tokens")):
        Probe(parse_address("http://h:8000/v1/chat/completions"), ask).run(None, str(tmp_path))


def answering(**reply: Any) -> ProbedServer:
    """What is found of a server whose every reply has these parts beside a choice."""

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        if body is None:
            return (
                {"data": [{"id": "m"}]}
                if path.endswith("/models")
                else CallFailure("HTTP 404", "refused", 404)
            )
        choice = {"index": 0, "text": "x", "message": {"content": "x"}, "finish_reason": "stop"}
        return {"choices": [choice | dict(reply.get("choice", {}))], "usage": reply.get("usage")}

    return Probe(parse_address("http://h:8000"), ask).run(None, None)


@pytest.mark.parametrize("name", [None, "moonphase"])
def test_the_name_of_an_end_that_says_nothing_is_taken_where_tokens_are_counted(name: str | None) -> None:
    found = answering(choice={"finish_reason": name}, usage={"completion_tokens": 1})
    assert found.abilities.ends == (str(name),)
    assert capabilities_from_plain(json.loads(json.dumps(found.abilities.plain()))) == found.abilities
    (note,) = [note for note in found.notes if "finish_reason" in note]
    assert f"{name}, which says nothing" in note
    with pytest.raises(CheckpointError, match=f"finish_reason {name!r} and counts no tokens"):
        answering(choice={"finish_reason": name})


def test_texts_that_begin_with_the_prompt_are_not_asked_for(whole: Path) -> None:
    found = answering(choice={"text": f"<s> {PROBE_TEXT} x"})
    assert (found.abilities.completions, found.abilities.chat) == (False, True)
    assert naming("completions", "begins with the prompt").search(found.notes[0])


def test_a_server_that_cuts_prompts_is_refused_in_one_line() -> None:
    with pytest.raises(CheckpointError, match=naming("8 tokens", 12)):
        answering(usage={"prompt_tokens": 8})
    assert answering(usage={"prompt_tokens": 20}).abilities.completions


def test_a_list_of_models_that_cannot_be_read_is_said_unless_one_is_named() -> None:
    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        if body is None:
            return CallFailure("the reply is a web page titled 'Sign in' and no JSON", "malformed")
        return {"choices": [{"index": 0, "text": "x", "message": {"content": "x"}, "finish_reason": "stop"}]}

    with pytest.raises(CheckpointError, match=naming("'Sign in'", "JSON", "address")):
        Probe(parse_address("http://h:8000"), ask).run(None, None)
    assert Probe(parse_address("http://h:8000"), ask).run("m", None).abilities.completions


def test_the_texts_of_many_requests_are_tokenized_together_and_each_once() -> None:
    asked: list[list[str]] = []

    def ask_all(path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        asked.append([body["prompt"] for body in bodies])
        return [{"tokens": list(body["prompt"].encode())} for body in bodies]

    tokens = tokenizer_by_name("/tokenize", ask_all)
    assert tokens.remote is not None
    asked.clear()
    found: list[object] = []

    def use() -> None:
        found[:] = [tokens.text.pair("ab", one) for one in (" c", " d", " c")]

    tokens.remote.ahead(use)
    assert asked == [["ab c", "ab", "ab d"]]
    use()
    assert found[0] == found[2] == TokenPair((97, 98), (32, 99), spans_join=False)
    assert len(asked) == 1
