"""Sequences as calls, and the scores in replies; what a reply lacks is never a score."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_touchstone.core.requests import LoglikelihoodAnswer
from pytest_touchstone.engines.http.calls import MalformedReplyError
from pytest_touchstone.engines.http.capabilities import (
    ServedModel,
    ServerCapabilities,
    capabilities_from_plain,
)
from pytest_touchstone.engines.http.scoring import score_calls, split_into_token_steps, top_tokens_call
from pytest_touchstone.engines.transformers.token_work import ScoringPlan, TargetScore, TokenWork
from tests.support.lines import naming

WORK = TokenWork((5, 6, 7), (7, 8))
"""Of the tokens 5 6 7 8 the last two are scored."""

OWN = ServerCapabilities(
    family="vllm", completions=True, tokens=True, scoring="prompt_logprobs", new=1, answers_as=("m",)
)
ECHO = ServerCapabilities(completions=True, tokens=True, scoring="echo", new=1, answers_as=("m",))

VLLM: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "text": " x",
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
            "prompt_logprobs": [
                None,
                {"6": {"logprob": -1.5, "rank": 3, "decoded_token": "b"}},
                {"7": {"logprob": -0.25, "rank": 1, "decoded_token": "c"}},
                {"8": {"logprob": -2.0, "rank": 2, "decoded_token": "d"}},
            ],
        }
    ],
    "usage": {"prompt_tokens": 4, "total_tokens": 5, "completion_tokens": 1},
}
"""A reply as vLLM 0.32 documents it, to ``prompt_logprobs`` 0."""

OPENAI: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "text": "abcd x",
            "finish_reason": "length",
            "logprobs": {
                "tokens": ["a", "b", "c", "d", " x"],
                "token_logprobs": [None, -1.5, -0.25, -2.0, -0.1],
                "top_logprobs": [None, {"q": -0.5}, {"c": -0.25}, {"d": -2.0, "z": -0.9}, {" x": -0.1}],
                "text_offset": [0, 1, 2, 3, 4],
            },
        }
    ],
    "usage": {"prompt_tokens": 4, "total_tokens": 5, "completion_tokens": 1},
}
"""A reply as OpenAI's API documents it, to ``echo`` with ``logprobs`` 1 and one new token."""


def scored(can: ServerCapabilities, reply: Any, work: TokenWork = WORK) -> TargetScore:
    (one,) = score_calls([work], [0], ServedModel("/v1", "m", can))
    return one.call.read(reply)[0]


@pytest.mark.parametrize(("can", "reply"), [(OWN, VLLM), (ECHO, OPENAI)], ids=["own", "echo"])
def test_the_last_tokens_of_a_prompt_are_summed(can: ServerCapabilities, reply: dict[str, Any]) -> None:
    assert scored(can, reply) == TargetScore(-2.25, False)
    assert scored(can, reply, TokenWork((5, 6, 7), (8,))).is_greedy is False
    assert scored(can, reply, TokenWork((5, 6, 7), (6, 7, 8))).logprob == pytest.approx(-3.75)


def test_a_token_is_greedy_where_none_is_likelier() -> None:
    reply = copy.deepcopy(OPENAI)
    reply["choices"][0]["logprobs"]["top_logprobs"][3] = {"d": -2.0}
    assert scored(ECHO, reply).is_greedy
    reply = copy.deepcopy(VLLM)
    reply["choices"][0]["prompt_logprobs"][3]["8"]["rank"] = 1
    assert scored(OWN, reply).is_greedy


def own(change: Callable[[list[Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda reply: change(reply["choices"][0]["prompt_logprobs"])


def echo(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda reply: change(reply["choices"][0]["logprobs"])


BROKEN = [
    (OWN, lambda reply: reply.pop("choices"), "no list of choices"),
    (OWN, lambda reply: reply.update(choices=[]), "0 choices where 1"),
    (OWN, lambda reply: reply.update(choices="many"), "no list of choices"),
    (OWN, lambda reply: reply.update(model="another"), "'another' answered"),
    (OWN, lambda reply: reply["usage"].update(prompt_tokens=5), "counts 5 tokens in a prompt of 4"),
    (OWN, lambda reply: reply["choices"][0].pop("prompt_logprobs"), "no prompt_logprobs for 4 tokens"),
    (OWN, own(lambda told: told.pop()), "3 prompt_logprobs for 4 tokens"),
    (OWN, own(lambda told: told.__setitem__(2, None)), "token 2 of the prompt has no log-probability"),
    (OWN, own(lambda told: told.__setitem__(3, {"9": {"logprob": -1.0, "rank": 1}})), "token 3"),
    (OWN, own(lambda told: told[3]["8"].update(logprob="-1")), "the log-probability '-1'"),
    (OWN, own(lambda told: told[3]["8"].update(logprob=float("nan"))), "the log-probability nan"),
    (OWN, own(lambda told: told[3]["8"].update(logprob=0.5)), "above 0"),
    (OWN, own(lambda told: [one[key].update(logprob=0.0) for one in told[1:] for key in one]), "all 3"),
    (ECHO, lambda reply: reply["choices"][0].update(logprobs=None), "echoes no log-probabilities"),
    (ECHO, echo(lambda told: told["token_logprobs"].pop()), "4 log-probabilities for 4 \\+ 1 tokens"),
    (ECHO, echo(lambda told: told["token_logprobs"].insert(0, None)), "6 log-probabilities"),
    (ECHO, echo(lambda told: told["token_logprobs"].__setitem__(2, None)), "log-probability None"),
    (ECHO, echo(lambda told: told.update(token_logprobs=[0.0] * 5)), "all 3 log-probabilities are 0"),
    (ECHO, echo(lambda told: told.update(top_logprobs=None)), "no most probable tokens"),
    (ECHO, echo(lambda told: told["top_logprobs"].__setitem__(2, {})), "no most probable token"),
    (ECHO, echo(lambda told: told["tokens"].__setitem__(2, "token_id:3")), "token 2 of the prompt is 7"),
]


@pytest.mark.parametrize(("can", "change", "said"), BROKEN)
def test_a_reply_that_lacks_something_is_malformed(
    can: ServerCapabilities, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    reply = copy.deepcopy(VLLM if can is OWN else OPENAI)
    change(reply)
    with pytest.raises(MalformedReplyError, match=said):
        scored(can, reply)


def test_choices_of_one_token_take_one_call_and_equal_works_are_asked_once() -> None:
    can = ServerCapabilities(**{**OWN.plain(), "choices": True})
    works = [TokenWork((5, 6), (token,)) for token in (7, 8, 7)] + [WORK, WORK]
    calls = score_calls(works, [0, 1, 2, 3, 4], ServedModel("/v1", "m", can))
    assert [one.works for one in calls] == [(0, 2, 1), (3, 4)]
    assert calls[0].call.body is not None
    assert calls[0].call.body["logprob_token_ids"] == [7, 8]
    reply = {
        "model": "m",
        "choices": [
            {
                "index": 0,
                "text": "x",
                "finish_reason": "length",
                "logprobs": {
                    "tokens": ["token_id:8"],
                    "token_logprobs": [-0.5],
                    "top_logprobs": [{"token_id:7": -1.0, "token_id:8": -0.5}],
                },
            }
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1},
    }
    assert calls[0].call.read(reply) == {
        0: TargetScore(-1.0, False),
        2: TargetScore(-1.0, False),
        1: TargetScore(-0.5, True),
    }
    del reply["choices"][0]["logprobs"]["top_logprobs"][0]["token_id:7"]  # type: ignore[index]
    with pytest.raises(MalformedReplyError, match=naming("token 7")):
        calls[0].call.read(reply)


STEPPING = replace(OWN, choices=True, block=16)


def _plans(before: int, *afters: tuple[int, ...]) -> list[ScoringPlan]:
    context = tuple(range(before))
    return [ScoringPlan((TokenWork((*context, *after[:-1]), after),), truncated=3) for after in afters]


def test_choices_go_in_steps_where_a_cache_makes_that_less_work() -> None:
    plans = _plans(320, (900, 901), (900, 902), (903,))
    found = split_into_token_steps(plans, STEPPING)
    assert [len(one.work) for one in found] == [2, 2, 1]
    assert found[0].work == (
        TokenWork(tuple(range(320)), (900,)),
        TokenWork((*range(320), 900), (901,)),
    )
    calls = score_calls(
        [work for one in found for work in one.work], [0] * 5, ServedModel("/v1", "m", STEPPING)
    )
    assert len(calls) == 2, "what follows the same tokens is asked in one call"
    scores = [TargetScore(-1.0, True), TargetScore(-2.0, False)]
    assert found[0].answer(scores) == LoglikelihoodAnswer(-3.0, False, 2, truncated=3)


@pytest.mark.parametrize(
    ("before", "tokens", "steps"), [(320, 4, True), (256, 4, False), (1000, 12, True), (64, 1, False)]
)
def test_a_long_continuation_and_a_short_context_are_asked_for_whole(
    before: int, tokens: int, steps: bool
) -> None:
    plans = _plans(before, tuple(range(2000, 2000 + tokens)))
    assert (split_into_token_steps(plans, STEPPING) != plans) is steps


def test_no_call_asks_for_more_next_tokens_than_servers_allow() -> None:
    can = ServerCapabilities(**{**OWN.plain(), "choices": True})
    calls = score_calls(
        [TokenWork((5,), (token,)) for token in range(40)], [0] * 40, ServedModel("/v1", "m", can)
    )
    assert [len(one.works) for one in calls] == [16, 16, 8]


def test_abilities_travel_as_plain_data() -> None:
    assert capabilities_from_plain({**OWN.plain(), "from_a_later_version": 1}) == OWN


TOLD: list[Any] = [
    None,
    {"6": {"logprob": -0.1, "rank": 1}, "9": {"logprob": -3.0, "rank": 2}},
    {"7": {"logprob": -0.25, "rank": 1}, "9": {"logprob": -2.0, "rank": 2}},
    {"8": {"logprob": -2.0, "rank": 3}, "9": {"logprob": -0.5, "rank": 1}, "4": {"logprob": -1.9, "rank": 2}},
]
"""``prompt_logprobs`` 2: two tokens, and the one that the prompt has where it is neither of them."""


def test_the_most_probable_tokens_are_read_at_each_target() -> None:
    body, read = top_tokens_call(WORK, OWN, 2)
    assert (body["prompt"], body["prompt_logprobs"], body["max_tokens"]) == ([5, 6, 7, 8], 2, 1)
    reply = copy.deepcopy(VLLM)
    reply["choices"][0]["prompt_logprobs"] = TOLD
    assert read(reply) == [{7: -0.25, 9: -2.0}, {8: -2.0, 9: -0.5, 4: -1.9}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"8": {"logprob": -2.0}}, "1 log-probabilities of a token, and 2 were asked for"),
        ({str(one): {"logprob": -2.0} for one in range(9)}, "9 log-probabilities of a token"),
        ({"8": {"logprob": -0.1}, "9": {"logprob": -0.1}}, "add up to 1.810"),
        ({"8": {"logprob": -2.0}, "x": {"logprob": -0.1}}, "of no token"),
        ({"8": {"logprob": -2.0}, "9": [1]}, "of no token"),
        ({"8": {"logprob": -2.0}, "9": {"logprob": float("nan")}}, "token 9"),
        ({"7": {"logprob": -2.0}, "9": {"logprob": -2.0}}, "token 3 of the prompt has no log-probability"),
    ],
)
def test_most_probable_tokens_that_cannot_be_are_malformed(change: dict[str, Any], said: str) -> None:
    reply = copy.deepcopy(VLLM)
    reply["choices"][0]["prompt_logprobs"] = [*TOLD[:3], change]
    with pytest.raises(MalformedReplyError, match=said):
        top_tokens_call(WORK, OWN, 2)[1](reply)
