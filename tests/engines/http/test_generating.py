"""Requests for texts -> calls, and replies -> texts that are answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from pytest_touchstone.core.reasoning import delimiters_of
from pytest_touchstone.core.requests import Generate, Generated, Refusal, Turn
from pytest_touchstone.engines.http.calls import MalformedReplyError
from pytest_touchstone.engines.http.capabilities import ServedModel, ServerCapabilities
from pytest_touchstone.engines.http.generating import (
    ExpectedTexts,
    ServerPrompt,
    TextSettings,
    build_prompt,
    merge_samples,
    min_tokens,
    parse_samples,
    text_calls,
)
from pytest_touchstone.engines.transformers.token_work import ChatMode
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.core.replies import REPLIES, Reply
from tests.support.lines import naming
from tests.support.tiny import bytelevel_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(bytelevel_tokenizer())


def reply(*choices: dict[str, Any], tokens: int = 3) -> dict[str, Any]:
    rows = [{"index": number, "finish_reason": "stop", **one} for number, one in enumerate(choices)]
    return {"model": "m", "choices": rows, "usage": {"prompt_tokens": 2, "completion_tokens": tokens}}


def test_a_text_ends_before_its_earliest_stop_whatever_the_server_cut() -> None:
    (one,) = texts(reply({"text": " 42\nmore", "finish_reason": "length"}), 1, ("more", "\n"))
    assert one == Generated(" 42", "stop", 3)


@pytest.mark.parametrize(
    ("choice", "stops", "reason"),
    [
        ({"stop_reason": None}, ("x",), "eos"),
        ({"stop_reason": "x"}, ("x",), "stop"),
        ({"stop_reason": 128009}, ("x",), "eos"),
        ({}, (), "eos"),
        ({}, ("x",), "stop"),
        ({"finish_reason": "length"}, (), "length"),
    ],
)
def test_the_reason_of_an_end_is_kept(choice: dict[str, Any], stops: tuple[str, ...], reason: str) -> None:
    assert texts(reply({"text": "a", **choice}), 1, stops)[0].finish_reason == reason


def test_token_ids_are_decoded_as_in_this_process(tokenizer: TextTokenizer) -> None:
    ids = list(tokenizer.text("the answer"))  # type: ignore[arg-type]
    choice = {"text": " the answer", "token_ids": [*ids, tokenizer.end], "stop_reason": None}
    (one,) = texts(reply(choice), 1, (), tokenizer)
    assert one == Generated("the answer", "eos", len(ids) + 1)


def test_a_missing_text_at_the_limit_is_empty_and_elsewhere_no_answer() -> None:
    for choice in ({"text": None}, {"message": {"role": "assistant", "content": None}}):
        (one,) = texts(reply({**choice, "finish_reason": "length"}), 1, ())
        assert one == Generated("", "length", 3)
        with pytest.raises(MalformedReplyError, match="the reply's text is None"):
            texts(reply(choice), 1, ())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"choices": []}, "0 choices where 1"),
        ({"choices": [{"index": 3, "text": "a", "finish_reason": "stop"}]}, "numbered"),
        ({"choices": [{"text": 4, "finish_reason": "stop"}]}, "text is 4"),
        ({"choices": [{"text": "a"}]}, "finish_reason is None"),
        ({"choices": [{"text": "a", "finish_reason": "abort"}]}, "finish_reason is 'abort'"),
        ([], "no list of choices"),
    ],
)
def test_what_is_no_text_is_malformed(wrong: Any, said: str) -> None:
    with pytest.raises(MalformedReplyError, match=said):
        parse_samples(wrong, ExpectedTexts())


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_a_text_that_is_all_in_the_reasoning_is_no_answer_and_not_asked_again(
    name: str, content: str | None
) -> None:
    message = {"role": "assistant", "content": content, name: "Let me see."}
    with pytest.raises(MalformedReplyError, match=naming("empty", name)) as raised:
        texts(reply({"message": message}), 1, ())
    assert raised.value.final
    (one,) = texts(reply({"message": message | {"content": None}, "finish_reason": "length"}), 1, ())
    assert (one.text, one.finish_reason) == ("", "length")
    assert texts(reply({"message": message | {"content": "7"}}), 1, ())[0].text == "7"


def test_a_reasoning_that_is_counted_and_not_shown_is_no_answer() -> None:
    data = reply({"message": {"content": ""}})
    assert texts(data, 1, ())[0].text == ""
    data["usage"]["completion_tokens_details"] = {"reasoning_tokens": 3}
    with pytest.raises(MalformedReplyError, match="hidden reasoning"):
        texts(data, 1, ())


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (
            {"text": "", "finish_reason": "content_filter"},
            "filter withheld the answer .finish_reason content_filter",
        ),
        ({"message": {"content": None, "refusal": "I cannot."}}, "withheld the answer: I cannot."),
        ({"message": {"content": None}, "finish_reason": "tool_calls"}, "calls a tool"),
        ({"message": {"content": None, "tool_calls": [{"id": "1"}]}}, "calls a tool"),
        ({"message": {"content": [{"type": "text"}]}}, "the reply's text is"),
        ({"text": "a", "finish_reason": "moonphase"}, "finish_reason is 'moonphase'"),
        ({"text": "a", "finish_reason": None}, "finish_reason is None"),
    ],
)
def test_what_a_server_would_reply_again_is_asked_once(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(MalformedReplyError, match=said) as raised:
        texts(reply(choice), 1, ())
    assert raised.value.final


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("eos_token", "eos"),
        ("end_turn", "eos"),
        ("stop_sequence", "stop"),
        ("MAX_TOKENS", "length"),
        ("STOP", "eos"),
    ],
)
def test_the_ends_of_other_apis_are_known_by_their_names(name: str, reason: str) -> None:
    assert texts(reply({"text": "a", "finish_reason": name}), 1, ())[0].finish_reason == reason


@pytest.mark.parametrize("said", [None, "moonphase"])
def test_where_the_name_of_an_end_says_nothing_the_tokens_tell(said: str | None) -> None:
    data = reply({"text": "a", "finish_reason": said})
    for limit, reason in ((3, "length"), (4, "eos")):
        wanted = ExpectedTexts(limit=limit, ends=(str(said),))
        assert parse_samples(data, wanted)[0].finish_reason == reason


QUESTION = "Question: how many legs have three cats?\nAnswer:"


@pytest.mark.parametrize("before", ["", "<s> ", "<|begin_of_text|>", " "])
def test_a_text_that_begins_with_the_prompt_is_no_answer(before: str) -> None:
    choice = {"text": f"{before}{QUESTION} 12"}
    wanted = ExpectedTexts(prompt=QUESTION, limit=64)
    for counted in (3, 100):
        with pytest.raises(MalformedReplyError, match="begins with the prompt"):
            parse_samples(reply(choice, tokens=counted), wanted)
    with pytest.raises(MalformedReplyError, match="begins with the prompt"):
        parse_samples({"choices": [{"finish_reason": "stop", **choice}]}, wanted)


def test_a_model_may_repeat_its_prompt_where_the_server_counts_that() -> None:
    choice = {"text": f"{QUESTION} 12"}
    assert (
        parse_samples(reply(choice, tokens=20), ExpectedTexts(prompt=QUESTION, limit=64))[0].text
        == choice["text"]
    )
    chat = {"choices": [{"finish_reason": "stop", "message": {"content": choice["text"]}}]}
    assert parse_samples(chat, ExpectedTexts(prompt=QUESTION, limit=64, chat=True))[0].text == choice["text"]


@pytest.mark.parametrize(
    ("text", "least"),
    [("", 0), ("one", 0), ("one two three four", 3), ("=" * 400, 0), ("人" * 100, 15), ("Hi " * 8, 6)],
)
def test_no_tokenizer_has_fewer_tokens_than_three_for_four_words(text: str, least: int) -> None:
    assert min_tokens(text) == least


def texts(
    data: Any, count: int, stops: tuple[str, ...], tokenizer: TextTokenizer | None = None
) -> list[Generated]:
    return parse_samples(data, ExpectedTexts(count=count, stops=stops, limit=64), tokenizer)


VLLM = ServerCapabilities(
    family="vllm", completions=True, chat=True, tokens=True, several=True, token_ids=True, continues=True
)
PLAIN = ServerCapabilities(completions=True, tokens=True)
REQUEST = Generate("The answer", max_new_tokens=8, stop=("\n",))


def asking(can: ServerCapabilities, tokenizer: TextTokenizer | None = None, **how: Any) -> TextSettings:
    given: dict[str, Any] = {"mode": ChatMode(), "limit": 64, "cut": False} | how
    return TextSettings(served_model=ServedModel("/v1", "m", can), tokenizer=tokenizer, **given)


def bodies(request: Generate, how: TextSettings) -> list[dict[str, Any]]:
    made = build_prompt(request, how)
    assert isinstance(made, ServerPrompt), made
    return [dict(one.body or {}) | {"path": one.path} for one in text_calls(made, 0, how)]


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
    refused = build_prompt(
        request, asking(ServerCapabilities(completions=True, chat=True), mode=ChatMode(chat=True))
    )
    assert isinstance(refused, Refusal)
    assert "--eval-set tokenizer" in refused.reason


def test_samples_come_of_one_call_or_of_one_each(tokenizer: TextTokenizer) -> None:
    drawn = Generate("a", max_new_tokens=4, temperature=0.5, top_p=0.9, samples=3, seed=7)
    (body,) = bodies(drawn, asking(VLLM, tokenizer))
    assert (body["n"], body["seed"], body["top_p"]) == (3, 7, 0.9)
    each = bodies(drawn, asking(PLAIN, tokenizer))
    assert [one["seed"] for one in each] == [7, 8, 9]
    assert all("n" not in one for one in each)
    greedy = Generate("a", max_new_tokens=4, samples=3)
    (body,) = bodies(greedy, asking(PLAIN, tokenizer))
    made = build_prompt(greedy, asking(PLAIN, tokenizer))
    assert isinstance(made, ServerPrompt)
    answer = merge_samples(made, [[Generated("x", "eos", 1)]], [2])
    assert not isinstance(answer, Refusal)
    assert len(answer.samples) == 3


def test_a_prompt_that_is_too_long_is_refused_with_the_numbers_and_cut_only_where_asked(
    tokenizer: TextTokenizer,
) -> None:
    long = Generate("the answer is " * 40, max_new_tokens=8)
    refused = build_prompt(long, asking(PLAIN, tokenizer))
    assert isinstance(refused, Refusal)
    assert naming(8, "--eval-seq-len 64").search(refused.reason)
    cut = build_prompt(long, asking(PLAIN, tokenizer, cut=True))
    assert isinstance(cut, ServerPrompt)
    assert (cut.tokens, cut.truncated > 0) == (56, True)


def test_a_draw_from_top_k_tokens_is_refused_where_the_server_may_not_know_it() -> None:
    refused = build_prompt(Generate("a", max_new_tokens=4, temperature=1.0, top_k=5), asking(PLAIN))
    assert isinstance(refused, Refusal)
    assert "top_k" in refused.reason


@pytest.mark.parametrize(
    "can", [ServerCapabilities(completions=True), ServerCapabilities(chat=True)], ids=["completions", "chat"]
)
def test_a_prompt_that_the_server_cut_is_no_answer(can: ServerCapabilities) -> None:
    long = "one two three four five six seven eight nine ten " * 20
    request = Generate(long, max_new_tokens=8, turns=(Turn("user", long),))
    how = asking(can, mode=ChatMode(chat=can.chat), limit=None)
    made = build_prompt(request, how)
    assert isinstance(made, ServerPrompt)
    (one,) = text_calls(made, 0, how)
    choice = {"index": 0, "text": "11", "message": {"content": "11"}, "finish_reason": "stop"}
    for counted in (None, 0, 150, 260):
        assert one.read({"choices": [choice], "usage": {"prompt_tokens": counted}})[0].text == "11"
    with pytest.raises(MalformedReplyError, match=naming("100 tokens", 150)):
        one.read({"choices": [choice], "usage": {"prompt_tokens": 100}})


def test_tokens_that_are_known_here_show_a_smaller_cut(tokenizer: TextTokenizer) -> None:
    request = Generate("The answer is seven. " * 40, max_new_tokens=8)
    how = asking(ServerCapabilities(completions=True), tokenizer, limit=None)
    made = build_prompt(request, how)
    assert isinstance(made, ServerPrompt)
    assert made.tokens is not None
    (one,) = text_calls(made, 0, how)
    choice = {"index": 0, "text": "11", "finish_reason": "stop"}
    one.read({"choices": [choice], "usage": {"prompt_tokens": made.tokens - 2}})
    with pytest.raises(MalformedReplyError, match="it has cut the prompt"):
        one.read({"choices": [choice], "usage": {"prompt_tokens": made.tokens // 2}})


# Reasoning, and system prompts


def chat(text: str | None, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text, **more}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (chat("<think>a\n\nb</think>\n\n4\n\nc"), Generated("4", "stop", 3, "a\n\nb")),
        (chat("a</think>4"), Generated("4", "eos", 3, "a")),
        (chat("4", reasoning_content="a\n\nb"), Generated("4", "eos", 3, "a\n\nb")),
        (chat("4", reasoning="a"), Generated("4", "eos", 3, "a")),
        ({**chat("<think>a"), "finish_reason": "length"}, Generated("", "length", 3, "a")),
        ({**chat(None, reasoning_content="a"), "finish_reason": "length"}, Generated("", "length", 3, "a")),
        (chat("4"), Generated("4", "eos", 3)),
    ],
)
def test_a_reasoning_in_a_reply_is_no_part_of_the_text(choice: dict[str, Any], expected: Generated) -> None:
    wanted = ExpectedTexts(stops=("\n\n",), limit=50, delimiters=delimiters_of("auto"), chat=True)
    (found,) = parse_samples(reply({"stop_reason": None, **choice}), wanted)
    assert found == expected


@pytest.mark.parametrize("one", REPLIES, ids=lambda one: one.name)
def test_a_reply_is_split_as_any_text_is_and_what_the_server_has_put_apart_is_closed(one: Reply) -> None:
    choice = chat(one.text, **({"reasoning_content": one.apart} if one.apart else {}))
    wanted = ExpectedTexts(limit=50, delimiters=delimiters_of("auto"), chat=True, opened=None)
    (found,) = parse_samples(reply({**choice, "finish_reason": "length" if one.limit else "stop"}), wanted)
    assert (found.text, found.reasoning is not None) == (one.answer, one.traced)
    assert not one.apart or found.reasoning == one.apart


@pytest.mark.parametrize("opened", [False, True, None])
def test_a_reasoning_apart_leaves_a_text_without_delimiters_whole(opened: bool | None) -> None:
    choice = {**chat("So 4", reasoning_content="a"), "finish_reason": "length"}
    wanted = ExpectedTexts(
        limit=50, delimiters=delimiters_of("</think>"), chat=True, opened=opened, opens=True
    )
    assert parse_samples(reply(choice), wanted) == [Generated("So 4", "length", 3, "a")]


def test_a_text_that_is_cut_off_is_a_trace_where_the_servers_template_is_known_to_open_one() -> None:
    wanted = ExpectedTexts(limit=50, delimiters=delimiters_of("auto"), chat=True, opened=None)
    (closed,) = parse_samples(reply(chat("a</think>4")), wanted)
    (begun,) = parse_samples(reply(chat("<think>a</think>4")), wanted)
    assert (closed.unopened, begun.unopened) == (True, False)
    cut = {**chat("4 or"), "finish_reason": "length"}
    texts = [parse_samples(reply(cut), replace(wanted, opens=opens))[0].text for opens in (False, True)]
    assert texts == ["4 or", ""]
    (ended,) = parse_samples(reply(chat("4")), replace(wanted, opens=True))
    assert ended.text == "4"


def test_a_model_that_reasons_is_sent_no_stops_which_its_reasoning_may_hold(tokenizer: TextTokenizer) -> None:
    request = Generate("q", max_new_tokens=5, stop=("\n",), turns=(Turn("user", "q"),))
    cases: tuple[tuple[str, Literal["off"] | None, list[str] | None], ...] = (
        ("auto", None, ["\n"]),
        ("</r>", None, None),
        ("</r>", "off", ["\n"]),
    )
    for think_end, thinking, stops in cases:
        asking = texts_of(
            tokenizer.with_reasoning(think_end, thinking), think_end=think_end, thinking=thinking
        )
        made = build_prompt(request, asking)
        assert isinstance(made, ServerPrompt)
        (call,) = text_calls(made, 0, asking)
        assert call.body is not None
        assert call.body.get("stop") == stops
        told = call.body.get("chat_template_kwargs")
        assert told == (None if thinking is None else {"enable_thinking": False, "thinking": False})


def test_a_system_prompt_stands_before_each_chat_and_nothing_else_is_asked(tokenizer: TextTokenizer) -> None:
    asking = texts_of(tokenizer, mode=ChatMode(chat=True, system="Be brief."))
    made = build_prompt(Generate("q", max_new_tokens=5, turns=(Turn("user", "q"),)), asking)
    assert isinstance(made, ServerPrompt)
    assert made.request.turns == (Turn("system", "Be brief."), Turn("user", "q"))
    own = build_prompt(
        Generate("q", max_new_tokens=5, turns=(Turn("system", "You add."), Turn("user", "q"))), asking
    )
    assert isinstance(own, ServerPrompt)
    assert own.request.turns[0] == Turn("system", "Be brief.\n\nYou add.")
    plain = build_prompt(Generate("q", max_new_tokens=5), asking)
    assert isinstance(plain, Refusal)
    assert "which a system prompt needs" in plain.reason


def texts_of(tokenizer: TextTokenizer, mode: ChatMode | None = None, **more: Any) -> TextSettings:
    """The way in which a server with all abilities is asked for texts."""
    can = ServerCapabilities(
        family="vllm", completions=True, chat=True, tokens=True, several=True, answers_as=("m",)
    )
    asked = ServedModel("/v1", "m", can)
    return TextSettings(
        served_model=asked,
        mode=mode or ChatMode(chat=True),
        tokenizer=tokenizer,
        limit=None,
        cut=False,
        **more,
    )
