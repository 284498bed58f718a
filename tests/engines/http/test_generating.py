"""Requests for texts as calls, and the texts in replies."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.core.requests import Generate, Generated, Refusal, Turn
from pytest_touchstone.engines.http.abilities import Abilities
from pytest_touchstone.engines.http.calls import Malformed
from pytest_touchstone.engines.http.generating import Asking, Prompted, answer_of, prompted, text_calls
from pytest_touchstone.engines.http.scoring import Asked
from pytest_touchstone.engines.transformers.token_work import ChatMode
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.tiny import bytelevel_tokenizer

VLLM = Abilities(
    family="vllm", completions=True, chat=True, tokens=True, several=True, token_ids=True, continues=True
)
PLAIN = Abilities(completions=True, tokens=True)
REQUEST = Generate("The answer", max_new_tokens=8, stop=("\n",))


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(bytelevel_tokenizer())


def asking(can: Abilities, tokenizer: TextTokenizer | None = None, **how: Any) -> Asking:
    given: dict[str, Any] = {"mode": ChatMode(), "limit": 64, "cut": False} | how
    return Asking(asked=Asked("/v1", "m", can), tokenizer=tokenizer, **given)


def bodies(request: Generate, how: Asking) -> list[dict[str, Any]]:
    made = prompted(request, how)
    assert isinstance(made, Prompted), made
    return [dict(one.call.body or {}) | {"path": one.call.path} for one in text_calls(made, 0, how)]


def test_a_prompt_goes_as_token_ids_with_what_servers_do_by_default_switched_off(
    tokenizer: TextTokenizer,
) -> None:
    (body,) = bodies(REQUEST, asking(VLLM, tokenizer))
    assert body["prompt"] == list(tokenizer.prompt("The answer"))  # type: ignore[arg-type]
    told = {name: body[name] for name in ("path", "max_tokens", "temperature", "top_k", "min_p", "stop")}
    assert told == {
        "path": "/v1/completions",
        "max_tokens": 8,
        "temperature": 0.0,
        "top_k": -1,
        "min_p": 0.0,
        "stop": ["\n"],
    }


def test_without_a_tokenizer_a_prompt_goes_as_text() -> None:
    (body,) = bodies(REQUEST, asking(PLAIN))
    assert body["prompt"] == "The answer"


def test_turns_go_to_chats_and_a_begun_answer_is_gone_on_from() -> None:
    turns = (Turn("user", "one?"), Turn("assistant", "It is"))
    request = Generate("one?", max_new_tokens=8, turns=turns, turns_max_new_tokens=30, turns_stop=("!",))
    how = asking(VLLM, mode=ChatMode(chat=True))
    (body,) = bodies(request, how)
    assert (body["path"], body["max_tokens"], body["stop"]) == ("/v1/chat/completions", 30, ["!"])
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    refused = prompted(request, asking(Abilities(completions=True, chat=True), mode=ChatMode(chat=True)))
    assert isinstance(refused, Refusal)
    assert "--eval-tokenizer" in refused.reason


def test_samples_come_of_one_call_or_of_one_each(tokenizer: TextTokenizer) -> None:
    drawn = Generate("a", max_new_tokens=4, temperature=0.5, top_p=0.9, samples=3, seed=7)
    (body,) = bodies(drawn, asking(VLLM, tokenizer))
    assert (body["n"], body["seed"], body["top_p"]) == (3, 7, 0.9)
    each = bodies(drawn, asking(PLAIN, tokenizer))
    assert [one["seed"] for one in each] == [7, 8, 9]
    assert all("n" not in one for one in each)
    greedy = Generate("a", max_new_tokens=4, samples=3)
    (body,) = bodies(greedy, asking(PLAIN, tokenizer))
    made = prompted(greedy, asking(PLAIN, tokenizer))
    assert isinstance(made, Prompted)
    answer = answer_of(made, [[Generated("x", "eos", 1)]], [2])
    assert not isinstance(answer, Refusal)
    assert len(answer.samples) == 3


def test_a_prompt_that_is_too_long_is_refused_with_the_numbers_and_cut_only_where_asked(
    tokenizer: TextTokenizer,
) -> None:
    long = Generate("the answer is " * 40, max_new_tokens=8)
    refused = prompted(long, asking(PLAIN, tokenizer))
    assert isinstance(refused, Refusal)
    assert "and 8 may follow, and the server takes 64 in all; --eval-seq-len 64" in refused.reason
    cut = prompted(long, asking(PLAIN, tokenizer, cut=True))
    assert isinstance(cut, Prompted)
    assert (cut.tokens, cut.truncated > 0) == (56, True)


def test_a_draw_from_top_k_tokens_is_refused_where_the_server_may_not_know_it() -> None:
    refused = prompted(Generate("a", max_new_tokens=4, temperature=1.0, top_k=5), asking(PLAIN))
    assert isinstance(refused, Refusal)
    assert "top_k" in refused.reason


@pytest.mark.parametrize(
    "can", [Abilities(completions=True), Abilities(chat=True)], ids=["completions", "chat"]
)
def test_a_prompt_that_the_server_cut_is_no_answer(can: Abilities) -> None:
    long = "one two three four five six seven eight nine ten " * 20
    request = Generate(long, max_new_tokens=8, turns=(Turn("user", long),))
    how = asking(can, mode=ChatMode(chat=can.chat), limit=None)
    made = prompted(request, how)
    assert isinstance(made, Prompted)
    (one,) = text_calls(made, 0, how)
    choice = {"index": 0, "text": "11", "message": {"content": "11"}, "finish_reason": "stop"}
    for counted in (None, 0, 150, 260):
        assert one.call.read({"choices": [choice], "usage": {"prompt_tokens": counted}})[0].text == "11"
    with pytest.raises(Malformed, match="counts 100 tokens in a prompt that has 150 at the least"):
        one.call.read({"choices": [choice], "usage": {"prompt_tokens": 100}})


def test_tokens_that_are_known_here_show_a_smaller_cut(tokenizer: TextTokenizer) -> None:
    request = Generate("The answer is seven. " * 40, max_new_tokens=8)
    how = asking(Abilities(completions=True), tokenizer, limit=None)
    made = prompted(request, how)
    assert isinstance(made, Prompted)
    assert made.tokens is not None
    (one,) = text_calls(made, 0, how)
    choice = {"index": 0, "text": "11", "finish_reason": "stop"}
    one.call.read({"choices": [choice], "usage": {"prompt_tokens": made.tokens - 2}})
    with pytest.raises(Malformed, match="it has cut the prompt"):
        one.call.read({"choices": [choice], "usage": {"prompt_tokens": made.tokens // 2}})
