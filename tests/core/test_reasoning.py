"""Reasoning before an answer is no part of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.reasoning import (
    DELIMITERS,
    ReasoningDelimiters,
    delimiters_among,
    delimiters_of,
    seems_to_have_trace,
    strip_answer_tags,
    without_trace,
)
from pytest_touchstone.core.requests import FinishReason, GenerateAnswer, Generated
from tests.core.replies import REPLIES, Reply


def split(text: str, think_end: str = "auto", end: FinishReason = "eos") -> tuple[str | None, str]:
    """The reasoning and the text of an answer."""
    (sample,) = without_trace(GenerateAnswer((Generated(text, end, 9),), 3), delimiters_of(think_end)).samples
    return sample.reasoning, sample.text


@pytest.mark.parametrize(
    "reply", [reply for reply in REPLIES if not reply.apart], ids=lambda reply: reply.name
)
def test_the_answer_is_what_follows_the_last_closed_trace(reply: Reply) -> None:
    reasoning, answer = split(reply.text, end="length" if reply.limit else "eos")
    assert (answer, reasoning is not None, seems_to_have_trace(answer)) == (
        reply.answer,
        reply.traced,
        reply.marked,
    )


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>\n1 + 1\n</think>\n\n2", "1 + 1", "2"),
        ("  <think></think>2", "", "2"),
        ("1 + 1\n</think>\n\n2", "1 + 1", "2"),  # the template has opened it
        ("<think>a</think>b</think>c", "a</think>b", "c"),  # the last one, as lm-evaluation-harness takes it
        ("<think>a <think>b</think> c", "a <think>b", "c"),
        ("<think>1 + 1", "1 + 1", ""),
        ("[THINK]a[/THINK]b", "a", "b"),
        ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b"),
        ("the tags <think> and </think> are markup", None, "the tags <think> and </think> are markup"),
        ("2", None, "2"),
        ("", None, ""),
        ("<think>a</think>\n    return 1", "a", "    return 1"),  # a program goes on
    ],
)
def test_the_answer_is_what_stands_after_the_reasoning(text: str, reasoning: str | None, answer: str) -> None:
    assert split(text) == (reasoning, answer)


@given(trace=st.text(max_size=40), answer=st.text(max_size=40), delimiters=st.sampled_from(DELIMITERS))
def test_a_trace_of_any_model_leaves_the_answer_as_it_is(
    trace: str, answer: str, delimiters: ReasoningDelimiters
) -> None:
    trace = f"a{trace}."  # words that stand for special tokens touch those of the text
    if not any(mark in trace + answer for pair in DELIMITERS for mark in (pair.begin, pair.end)):
        reasoning, text = split(f"{delimiters.begin}{trace}{delimiters.end}{answer}")
        assert reasoning == trace
        assert text.lstrip() == answer.lstrip()


@given(text=st.text("<>/think THINK\n`[]◁▷|analysisfinal:57", max_size=60))
def test_a_text_is_left_as_it_is_or_its_end_is_the_answer(text: str) -> None:
    for end in ("eos", "length"):
        reasoning, answer = split(text, end=end)
        assert answer == text if reasoning is None else text.endswith(answer)


def test_a_mark_that_is_named_is_the_only_one_and_may_end_what_nothing_began() -> None:
    assert split("a </r> b", "</r>") == ("a", "b")
    assert split("a <think> c </r> b", "</r>") == ("a <think> c", "b")
    assert split("<think>a</think>b", "</r>") == (None, "<think>a</think>b")
    assert split("a b", "</r>") == (None, "a b")
    assert split("a b", "</r>", "length") == ("a b", "")
    assert split("<think>a", "</think>") == ("a", "")


def test_texts_are_left_whole_where_that_is_asked_and_then_seem_traced() -> None:
    text = "<think>a</think>b"
    assert split(text, "off") == (None, text)
    assert seems_to_have_trace(text)
    assert not seems_to_have_trace("b")


def test_what_an_engine_has_split_stays() -> None:
    answer = GenerateAnswer((Generated("say </think>", "eos", 3, "a", 1),), 3)
    assert without_trace(answer, DELIMITERS) is answer


def test_words_that_any_template_may_have_are_no_delimiters_without_their_beginning() -> None:
    chatml = "{{ message }}<|im_end|>\n<|im_start|>assistant\n"
    assert delimiters_among(DELIMITERS, chatml) is None
    granite = delimiters_among(DELIMITERS, "Here is my thought process: ... Here is my response:")
    assert granite is not None
    assert granite.end == "Here is my response:"


def test_a_model_is_known_by_its_template_and_its_vocabulary() -> None:
    found = delimiters_among(DELIMITERS, "{% if enable_thinking %}<think>{% endif %}</think>")
    assert found is not None
    assert (found.begin, found.end) == ("<think>", "</think>")
    assert delimiters_among(DELIMITERS, "{{ messages }}") is None
    (named,) = delimiters_of("</r>")
    assert delimiters_among((named,), "") is named


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>\n  7\n</answer>", "  7\n"),
        ("\n\n<response>\n7\n</response>\n", "7\n"),
        ("<ANSWER>7</Answer> so", "7"),
        ("<response><answer>7</answer></response>", "7"),
        ("<answer>print('</answer>')\n</answer>", "print('</answer>')\n"),
        ("<answer>\n7", "7"),
        ("It is <answer>7</answer>", "It is <answer>7</answer>"),
        ("<answers>7</answers>", "<answers>7</answers>"),
        ("7</answer>", "7</answer>"),
    ],
)
def test_the_tags_that_families_put_around_an_answer_are_taken_off(text: str, answer: str) -> None:
    assert strip_answer_tags(text) == answer
