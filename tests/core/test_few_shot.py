"""A question is written once: requests for it as plain text and as a chat, greedy or sampled."""

from __future__ import annotations

import pytest

from pytest_touchstone import ChatForm, FewShot, Generate, Loglikelihood, Sampling, Turn

TURNS = (Turn("user", "1+1="), Turn("assistant", "2"))
FEWSHOT = FewShot("1+1= 2\n\n", TURNS, Sampling(5, 0.8, 0.9, 7))


def test_few_shot_examples_stand_before_the_context_and_after_a_header() -> None:
    assert FEWSHOT.loglikelihood("2+2=", " 4") == Loglikelihood("1+1= 2\n\n2+2=", " 4")
    assert FEWSHOT.loglikelihood("2+2=", " 4", header="Sums.\n\n").context == "Sums.\n\n1+1= 2\n\n2+2="
    assert FewShot().loglikelihood("2+2=", " 4") == Loglikelihood("2+2=", " 4")


def test_a_question_is_asked_as_text_and_as_a_chat() -> None:
    asked = FEWSHOT.generate("2+2=", stop=("\n",), max_new_tokens=8)
    assert asked == Generate(
        "1+1= 2\n\n2+2=", stop=("\n",), max_new_tokens=8, turns=(*TURNS, Turn("user", "2+2="))
    )


def test_a_header_stands_before_the_examples_and_begins_a_chat() -> None:
    asked = FEWSHOT.generate("2+2=", max_new_tokens=8, header="Sums.\n\n")
    assert asked.prompt == "Sums.\n\n1+1= 2\n\n2+2="
    assert asked.turns == (Turn("user", "Sums.\n\n1+1="), TURNS[1], Turn("user", "2+2="))


def test_examples_in_one_piece_are_a_part_of_the_chats_question() -> None:
    asked = FewShot("1+1= 2\n\n").generate("2+2=", max_new_tokens=8)
    assert asked.turns == (Turn("user", "1+1= 2\n\n2+2="),)


def test_a_chat_may_be_asked_in_other_words() -> None:
    chat = ChatForm("What is 2+2?", "It is", stop=(".",), max_new_tokens=99)
    asked = FEWSHOT.generate("2+2=", max_new_tokens=8, chat=chat)
    assert asked.prompt == "1+1= 2\n\n2+2="
    assert asked.turns == (*TURNS, Turn("user", "What is 2+2?"), Turn("assistant", "It is"))
    assert (asked.max_new_tokens, asked.turns_stop, asked.turns_max_new_tokens) == (8, (".",), 99)


@pytest.mark.parametrize("sampled", [True, False])
def test_only_what_is_sampled_follows_the_runs_options(sampled: bool) -> None:
    asked = FEWSHOT.generate("2+2=", max_new_tokens=8, sampled=sampled)
    found = (asked.samples, asked.temperature, asked.top_p, asked.seed)
    assert found == ((5, 0.8, 0.9, 7) if sampled else (1, 0.0, 1.0, 0))


def test_other_fields_of_a_request_can_be_given() -> None:
    asked = FEWSHOT.generate("2+2=", max_new_tokens=8, sampled=True, temperature=0.1, top_k=4)
    assert (asked.samples, asked.temperature, asked.top_k) == (5, 0.1, 4)
