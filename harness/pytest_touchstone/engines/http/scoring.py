"""Token sequences to score -> calls, and replies -> scores.

A sequence is asked for whole, as token ids, and the server gives the log-probability of each of its tokens. Where it
gives those of chosen next tokens, sequences that differ in their last token alone take one call: the choices A to D of
a question are one prompt. Equal sequences are asked once.

vLLM computes a whole prompt anew when its log-probabilities are asked for, and uses its prefix cache when next tokens
are. So a short continuation of a long context is asked for token by token (``split_into_token_steps``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pytest_touchstone.engines.http.calls import Call, MalformedReplyError
from pytest_touchstone.engines.http.capabilities import NEUTRAL, ServedModel, ServerCapabilities
from pytest_touchstone.engines.http.replies import (
    Json,
    check_not_all_zero,
    check_prompt,
    choices,
    logprob,
    token_number,
)
from pytest_touchstone.engines.transformers.token_work import Score, ScoringPlan, TokenWork

STEP_COSTS: Final = 64
"""The tokens of a prompt that cost a server about as much as a request does, beside its own tokens."""

MOST_CHOICES: Final = 16
"""The most next tokens that one call asks for; servers have a limit, which is often 20."""

_ROUNDING: Final = 0.01
"""The excess of a sum of probabilities over 1 that a server's number type may explain."""


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """A call whose reply has the scores of several works, by their numbers; all have the same."""

    call: Call[dict[int, Score]]
    works: tuple[int, ...]


def split_into_token_steps(plans: Sequence[ScoringPlan], abilities: ServerCapabilities) -> list[ScoringPlan]:
    """Return the plans of choices with a step per token, where a prefix cache makes that less work for the server.

    Choices of one context are asked alike. Of a cached prompt, what fills no block is computed anew.
    """
    together: dict[tuple[int, ...], list[int]] = {}
    steps = [tuple(step for work in made.work for step in _steps(work)) for made in plans]
    for number, parts in enumerate(steps):
        together.setdefault(parts[0].inputs, []).append(number)
    found = list(plans)
    for same in together.values():
        prompts = {step.inputs for number in same for step in steps[number]}
        cost = sum((len(prompt) - 1) % abilities.block + 1 + STEP_COSTS for prompt in prompts)
        if cost < sum(len(work.inputs) + 1 for number in same for work in plans[number].work):
            for number in same:
                found[number] = replace(found[number], work=steps[number])
    return found


def _steps(work: TokenWork) -> Iterator[TokenWork]:
    begin = len(work.inputs) - len(work.targets) + 1
    for place, target in enumerate(work.targets, begin):
        yield TokenWork(work.inputs[:place], (target,))


def score_calls(works: Sequence[TokenWork], owners: Sequence[int], asked: ServedModel) -> list[ScoreCall]:
    """Return the calls for works of these owners, in the order of the works."""
    numbers: dict[TokenWork, list[int]] = {}
    for number, work in enumerate(works):
        numbers.setdefault(work, []).append(number)
    together: dict[tuple[int, ...], list[TokenWork]] = {}
    for work in numbers:
        single = asked.abilities.choices and len(work.targets) == 1
        # All targets are a key only where they are scored together.
        together.setdefault(work.inputs if single else (*work.inputs, -1, *work.targets), []).append(work)
    return [
        _call(part, {work: numbers[work] for work in part}, owners, asked)
        for same in together.values()
        for part in _parts(same)
    ]


def _parts(works: Sequence[TokenWork]) -> Iterator[Sequence[TokenWork]]:
    return (works[begin : begin + MOST_CHOICES] for begin in range(0, len(works), MOST_CHOICES))


def _call(
    works: Sequence[TokenWork],
    numbers: Mapping[TokenWork, Sequence[int]],
    owners: Sequence[int],
    asked: ServedModel,
) -> ScoreCall:
    first = works[0]
    if asked.abilities.choices and len(first.targets) == 1:
        targets = [work.targets[0] for work in works]
        body, read = next_tokens(first.inputs, targets, asked.abilities)
    else:
        body, read = whole_prompt_call(first, asked.abilities)

    def scores(data: Any) -> dict[int, Score]:
        found = read(data)
        return {number: score for work, score in zip(works, found, strict=True) for number in numbers[work]}

    mine = tuple(number for work in works for number in numbers[work])
    return ScoreCall(asked.call("completions", body, scores, owners[mine[0]]), mine)


Read = Callable[[Any], list[Score]]


def next_tokens(
    inputs: Sequence[int], targets: Sequence[int], abilities: ServerCapabilities
) -> tuple[dict[str, Any], Read]:
    """Return the body that asks for the log-probabilities of chosen next tokens, and the reader of its reply.

    The token that the server draws, greedily, is the most probable one.
    """
    body = {
        "prompt": list(inputs),
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": 1,
        "logprob_token_ids": list(targets),
        "return_tokens_as_token_ids": True,
        **NEUTRAL[abilities.family],
    }

    def read(data: Any) -> list[Score]:
        check_prompt(data, len(inputs))
        (choice,) = choices(data, 1)
        told = choice.get("logprobs") or {}
        tokens, tops = told.get("tokens"), told.get("top_logprobs")
        if not isinstance(tokens, list) or not isinstance(tops, list) or not tokens or not tops:
            raise MalformedReplyError("the reply has no log-probabilities of the next token")
        by_token = {token_number(name): value for name, value in (tops[0] or {}).items()}
        best = token_number(tokens[0])
        if missing := [token for token in targets if token not in by_token]:
            raise MalformedReplyError(f"the reply has no log-probability of the next token {missing[0]}")
        values = [logprob(by_token[token], f"the next token {token}") for token in targets]
        check_not_all_zero(values)
        return [Score(value, token == best) for token, value in zip(targets, values, strict=True)]

    return body, read


def whole_prompt_call(work: TokenWork, abilities: ServerCapabilities) -> tuple[dict[str, Any], Read]:
    """Return the body that asks for the log-probabilities of a whole sequence, and the reader of its reply."""
    ids = (*work.inputs, work.targets[-1])
    begin = len(ids) - len(work.targets)
    body = {"prompt": list(ids), "max_tokens": abilities.new, "temperature": 0.0}
    if abilities.scoring == "prompt_logprobs":
        body |= {"prompt_logprobs": abilities.prompt_logprobs}
    else:
        body |= {"echo": True, "logprobs": 1}
    if abilities.family == "vllm":
        body["return_tokens_as_token_ids"] = True

    def read(data: Any) -> list[Score]:
        check_prompt(data, len(ids))
        (choice,) = choices(data, 1)
        if abilities.scoring == "prompt_logprobs":
            places = prompt_logprobs(choice, ids)
        else:
            places = parse_echoed_logprobs(choice, ids, abilities.new)
        check_not_all_zero([value for value, _ in places[1:]])
        parts = places[begin:]
        return [Score(sum(value for value, _ in parts), all(best for _, best in parts))]

    return body, read


Place = tuple[float, bool]
"""The log-probability of a token, and whether it is the most probable one."""


def most_probable(
    work: TokenWork, abilities: ServerCapabilities, most: int
) -> tuple[dict[str, Any], Callable[[Any], list[dict[int, float]]]]:
    """Return the body that asks for the ``most`` most probable tokens at each target, and the reader of its reply: the
    log-probabilities by token, that of the target among them."""
    ids = (*work.inputs, work.targets[-1])
    body, _ = whole_prompt_call(work, abilities)

    def read(data: Any) -> list[dict[int, float]]:
        check_prompt(data, len(ids))
        (choice,) = choices(data, 1)
        prompt_logprobs(choice, ids)  # raises where the target is missing
        return [_by_token(known, most) for known in choice["prompt_logprobs"][-len(work.targets) :]]

    return body | {"prompt_logprobs": most}, read


def _by_token(known: Mapping[str, Any], most: int) -> dict[int, float]:
    found = {}
    for name, one in known.items():
        if not name.isdecimal() or not isinstance(one, Mapping):
            raise MalformedReplyError("the reply has log-probabilities of no token")
        found[int(name)] = logprob(one.get("logprob"), f"token {name}")
    if not most <= len(found) <= most + 1:
        raise MalformedReplyError(
            f"the reply has {len(found)} log-probabilities of a token, and {most} were asked for"
        )
    if (total := sum(map(math.exp, found.values()))) > 1 + _ROUNDING:
        raise MalformedReplyError(
            f"the probabilities of the {len(found)} most probable tokens add up to {total:.3f}"
        )
    return found


def prompt_logprobs(choice: Json, ids: Sequence[int]) -> list[Place]:
    """Return what vLLM's ``prompt_logprobs`` say of each token; the first, which nothing predicts, counts as 0."""
    told = choice.get("prompt_logprobs")
    if not isinstance(told, list) or len(told) != len(ids):
        found = f"{len(told)}" if isinstance(told, list) else "no"
        raise MalformedReplyError(f"the reply has {found} prompt_logprobs for {len(ids)} tokens")
    places: list[Place] = [(0.0, True)]
    for place, (token, known) in enumerate(zip(ids[1:], told[1:], strict=True), 1):
        one = known.get(str(token)) if isinstance(known, Mapping) else None
        if not isinstance(one, Mapping):
            raise MalformedReplyError(
                f"token {place} of the prompt has no log-probability: the server has another there"
            )
        value = logprob(one.get("logprob"), f"token {place} of the prompt")
        places.append((value, one.get("rank") == 1))
    return places


def parse_echoed_logprobs(choice: Json, ids: Sequence[int], new: int) -> list[Place]:
    """Return what the log-probabilities of an echoed prompt say of each token, without the ``new`` ones after it."""
    told = choice.get("logprobs")
    values = told.get("token_logprobs") if isinstance(told, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(values, list):
        raise MalformedReplyError("the reply echoes no log-probabilities")
    if len(values) != len(ids) + new:
        raise MalformedReplyError(
            f"the reply echoes {len(values)} log-probabilities for {len(ids)} + {new} tokens"
        )
    tokens, tops = told.get("tokens"), told.get("top_logprobs")
    if not isinstance(tops, list) or len(tops) != len(values):
        raise MalformedReplyError("the reply has no most probable tokens beside the echoed ones")
    if isinstance(tokens, list):
        _check_tokens(tokens, ids)
    places: list[Place] = [(0.0, True)]
    for place in range(1, len(ids)):
        value = logprob(values[place], f"token {place} of the prompt")
        top = tops[place]
        if not isinstance(top, Mapping) or not top:
            raise MalformedReplyError(f"token {place} of the prompt has no most probable token beside it")
        best = max(logprob(one, f"token {place} of the prompt") for one in top.values())
        places.append((value, value >= best))
    return places


def _check_tokens(tokens: Sequence[Any], ids: Sequence[int]) -> None:
    """Raise ``MalformedReplyError`` where the server names other tokens than it was sent."""
    for place, (said, token) in enumerate(zip(tokens, ids, strict=False)):
        if (number := token_number(said)) is not None and number != token:
            raise MalformedReplyError(
                f"token {place} of the prompt is {token}, and the server has {number} there"
            )
