"""The texts in replies, and the replies that are no answer."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.core.requests import Generated
from pytest_touchstone.engines.http.calls import Malformed
from pytest_touchstone.engines.http.generating import WantedTexts, fewest_tokens, read_texts
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
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
        with pytest.raises(Malformed, match="the reply's text is None"):
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
    with pytest.raises(Malformed, match=said):
        read_texts(wrong, WantedTexts())


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_a_text_that_is_all_in_the_reasoning_is_no_answer_and_not_asked_again(
    name: str, content: str | None
) -> None:
    message = {"role": "assistant", "content": content, name: "Let me see."}
    with pytest.raises(Malformed, match=f"empty, and all of it in its {name}") as raised:
        texts(reply({"message": message}), 1, ())
    assert raised.value.final
    (one,) = texts(reply({"message": message | {"content": None}, "finish_reason": "length"}), 1, ())
    assert (one.text, one.finish_reason) == ("", "length")
    assert texts(reply({"message": message | {"content": "7"}}), 1, ())[0].text == "7"


def test_a_reasoning_that_is_counted_and_not_shown_is_no_answer() -> None:
    data = reply({"message": {"content": ""}})
    assert texts(data, 1, ())[0].text == ""
    data["usage"]["completion_tokens_details"] = {"reasoning_tokens": 3}
    with pytest.raises(Malformed, match="hidden reasoning"):
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
    with pytest.raises(Malformed, match=said) as raised:
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
        wanted = WantedTexts(limit=limit, ends=(str(said),))
        assert read_texts(data, wanted)[0].finish_reason == reason


QUESTION = "Question: how many legs have three cats?\nAnswer:"


@pytest.mark.parametrize("before", ["", "<s> ", "<|begin_of_text|>", " "])
def test_a_text_that_begins_with_the_prompt_is_no_answer(before: str) -> None:
    choice = {"text": f"{before}{QUESTION} 12"}
    wanted = WantedTexts(prompt=QUESTION, limit=64)
    for counted in (3, 100):
        with pytest.raises(Malformed, match="begins with the prompt"):
            read_texts(reply(choice, tokens=counted), wanted)
    with pytest.raises(Malformed, match="begins with the prompt"):
        read_texts({"choices": [{"finish_reason": "stop", **choice}]}, wanted)


def test_a_model_may_repeat_its_prompt_where_the_server_counts_that() -> None:
    choice = {"text": f"{QUESTION} 12"}
    assert (
        read_texts(reply(choice, tokens=20), WantedTexts(prompt=QUESTION, limit=64))[0].text == choice["text"]
    )
    chat = {"choices": [{"finish_reason": "stop", "message": {"content": choice["text"]}}]}
    assert read_texts(chat, WantedTexts(prompt=QUESTION, limit=64, chat=True))[0].text == choice["text"]


@pytest.mark.parametrize(
    ("text", "least"),
    [("", 0), ("one", 0), ("one two three four", 3), ("=" * 400, 0), ("人" * 100, 15), ("Hi " * 8, 6)],
)
def test_no_tokenizer_has_fewer_tokens_than_three_for_four_words(text: str, least: int) -> None:
    assert fewest_tokens(text) == least


def texts(
    data: Any, count: int, stops: tuple[str, ...], tokenizer: TextTokenizer | None = None
) -> list[Generated]:
    return read_texts(data, WantedTexts(count=count, stops=stops, limit=64), tokenizer)
