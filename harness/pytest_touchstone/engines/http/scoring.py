"""Turn token sequences into calls, and the replies into scores.

A sequence is sent whole, as token ids, and the server returns the log-probability of each token. If the server scores
chosen next tokens, sequences that differ only in the last token share a call: the choices A to D of a question are one
prompt. Equal sequences are sent once.

vLLM recomputes a whole prompt for its log-probabilities, but uses its prefix cache for next tokens. So a short
continuation of a long context is scored token by token (``split_into_token_steps``).
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
    parse_choices,
    parse_logprob,
    parse_token_id,
)
from pytest_touchstone.engines.transformers.token_work import ScoringPlan, TargetScore, TokenWork

STEP_COSTS: Final = 64
"""The overhead of a request, in prompt tokens of equal cost."""

MOST_CHOICES: Final = 16
"""The maximum next tokens per call; servers have a limit, which is often 20."""

_ROUNDING: Final = 0.01
"""The excess of a sum of probabilities over 1 that a server's rounding may explain."""


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """A call whose reply has the scores of several works, by their indices."""

    call: Call[dict[int, TargetScore]]
    works: tuple[int, ...]


def split_into_token_steps(plans: Sequence[ScoringPlan], abilities: ServerCapabilities) -> list[ScoringPlan]:
    """Split plans into a step per token where a prefix cache makes that cheaper for the server.

    All choices of one context are scored the same way. The server recomputes the part of a cached prompt after its last
    full block.
    """
    by_context: dict[tuple[int, ...], list[int]] = {}
    steps = [tuple(step for work in plan.work for step in _steps(work)) for plan in plans]
    for index, plan_steps in enumerate(steps):
        by_context.setdefault(plan_steps[0].inputs, []).append(index)
    cheapest = list(plans)
    for indices in by_context.values():
        prompts = {step.inputs for index in indices for step in steps[index]}
        cost = sum((len(prompt) - 1) % abilities.block + 1 + STEP_COSTS for prompt in prompts)
        if cost < sum(len(work.inputs) + 1 for index in indices for work in plans[index].work):
            for index in indices:
                cheapest[index] = replace(plans[index], work=steps[index])
    return cheapest


def _steps(work: TokenWork) -> Iterator[TokenWork]:
    """Yield a work of one target for each target of a work."""
    begin = len(work.inputs) - len(work.targets) + 1
    for position, target in enumerate(work.targets, begin):
        yield TokenWork(work.inputs[:position], (target,))


def score_calls(works: Sequence[TokenWork], owners: Sequence[int], served: ServedModel) -> list[ScoreCall]:
    """Return the calls for works, in their order; ``owners`` has the request of each work."""
    indices: dict[TokenWork, list[int]] = {}
    for index, work in enumerate(works):
        indices.setdefault(work, []).append(index)
    groups: dict[tuple[int, ...], list[TokenWork]] = {}
    for work in indices:
        single = served.abilities.choices and len(work.targets) == 1
        # All targets are in the key only if they are scored in one call.
        groups.setdefault(work.inputs if single else (*work.inputs, -1, *work.targets), []).append(work)
    return [
        _score_call(group[begin : begin + MOST_CHOICES], indices, owners, served)
        for group in groups.values()
        for begin in range(0, len(group), MOST_CHOICES)
    ]


def _score_call(
    works: Sequence[TokenWork],
    indices: Mapping[TokenWork, Sequence[int]],
    owners: Sequence[int],
    served: ServedModel,
) -> ScoreCall:
    """Return the call for works that share a prompt; ``indices`` has those of all equal works."""
    first = works[0]
    if served.abilities.choices and len(first.targets) == 1:
        targets = [work.targets[0] for work in works]
        body, read = next_token_call(first.inputs, targets, served.abilities)
    else:
        body, read = whole_prompt_call(first, served.abilities)

    def read_by_index(reply: Any) -> dict[int, TargetScore]:
        scores = read(reply)
        return {index: score for work, score in zip(works, scores, strict=True) for index in indices[work]}

    answered = tuple(index for work in works for index in indices[work])
    return ScoreCall(served.call("completions", body, read_by_index, owners[answered[0]]), answered)


ReadScores = Callable[[Any], list[TargetScore]]


def next_token_call(
    inputs: Sequence[int], targets: Sequence[int], abilities: ServerCapabilities
) -> tuple[dict[str, Any], ReadScores]:
    """Return the body to score chosen next tokens, and the reader of its reply.

    The server samples greedily, so the token that it generates is the most probable one.
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

    def read(reply: Any) -> list[TargetScore]:
        check_prompt(reply, len(inputs))
        (choice,) = parse_choices(reply, 1)
        logprobs = choice.get("logprobs") or {}
        tokens, top_logprobs = logprobs.get("tokens"), logprobs.get("top_logprobs")
        if (
            not isinstance(tokens, list)
            or not isinstance(top_logprobs, list)
            or not tokens
            or not top_logprobs
        ):
            raise MalformedReplyError("the reply has no log-probabilities of the next token")
        by_token = {
            parse_token_id(name): alternative for name, alternative in (top_logprobs[0] or {}).items()
        }
        most_probable_token = parse_token_id(tokens[0])
        if missing := [token for token in targets if token not in by_token]:
            raise MalformedReplyError(f"the reply has no log-probability of the next token {missing[0]}")
        values = [parse_logprob(by_token[token], f"the next token {token}") for token in targets]
        check_not_all_zero(values)
        return [
            TargetScore(value, token == most_probable_token)
            for token, value in zip(targets, values, strict=True)
        ]

    return body, read


def whole_prompt_call(work: TokenWork, abilities: ServerCapabilities) -> tuple[dict[str, Any], ReadScores]:
    """Return the body to score a whole sequence, and the reader of its reply."""
    ids = (*work.inputs, work.targets[-1])
    begin = len(ids) - len(work.targets)
    body = {"prompt": list(ids), "max_tokens": abilities.new, "temperature": 0.0}
    if abilities.scoring == "prompt_logprobs":
        body |= {"prompt_logprobs": abilities.prompt_logprobs}
    else:
        body |= {"echo": True, "logprobs": 1}
    if abilities.family == "vllm":
        body["return_tokens_as_token_ids"] = True

    def read(reply: Any) -> list[TargetScore]:
        check_prompt(reply, len(ids))
        (choice,) = parse_choices(reply, 1)
        if abilities.scoring == "prompt_logprobs":
            token_scores = parse_prompt_logprobs(choice, ids)
        else:
            token_scores = parse_echoed_logprobs(choice, ids, abilities.new)
        check_not_all_zero([token_logprob for token_logprob, _ in token_scores[1:]])
        target_scores = token_scores[begin:]
        total = sum(token_logprob for token_logprob, _ in target_scores)
        return [TargetScore(total, all(is_best for _, is_best in target_scores))]

    return body, read


TokenScore = tuple[float, bool]
"""The log-probability of a token, and whether it is the most probable one."""


def top_tokens_call(
    work: TokenWork, abilities: ServerCapabilities, most: int
) -> tuple[dict[str, Any], Callable[[Any], list[dict[int, float]]]]:
    """Return the body for the ``most`` most probable tokens at each target, and the reader of its reply.

    The reader returns log-probabilities by token for each target; the target is among the tokens.
    """
    ids = (*work.inputs, work.targets[-1])
    body, _ = whole_prompt_call(work, abilities)

    def read(reply: Any) -> list[dict[int, float]]:
        check_prompt(reply, len(ids))
        (choice,) = parse_choices(reply, 1)
        parse_prompt_logprobs(choice, ids)  # raises where the target is missing
        return [
            _logprobs_by_token(alternatives, most)
            for alternatives in choice["prompt_logprobs"][-len(work.targets) :]
        ]

    return body | {"prompt_logprobs": most}, read


def _logprobs_by_token(alternatives: Mapping[str, Any], most: int) -> dict[int, float]:
    logprobs = {}
    for name, alternative in alternatives.items():
        if not name.isdecimal() or not isinstance(alternative, Mapping):
            raise MalformedReplyError("the reply has log-probabilities of no token")
        logprobs[int(name)] = parse_logprob(alternative.get("logprob"), f"token {name}")
    if not most <= len(logprobs) <= most + 1:
        raise MalformedReplyError(
            f"the reply has {len(logprobs)} log-probabilities of a token, and {most} were asked for"
        )
    if (total := sum(map(math.exp, logprobs.values()))) > 1 + _ROUNDING:
        raise MalformedReplyError(
            f"the probabilities of the {len(logprobs)} most probable tokens add up to {total:.3f}"
        )
    return logprobs


def parse_prompt_logprobs(choice: Json, ids: Sequence[int]) -> list[TokenScore]:
    """Parse vLLM's ``prompt_logprobs``.

    Returns:
        For each prompt token its log-probability, and whether it is the most probable one. The first token has no
        context; it counts as ``(0.0, True)``.

    Raises:
        MalformedReplyError: If the reply lacks log-probabilities, or has those of other tokens.

    """
    rows = choice.get("prompt_logprobs")
    if not isinstance(rows, list) or len(rows) != len(ids):
        length = f"{len(rows)}" if isinstance(rows, list) else "no"
        raise MalformedReplyError(f"the reply has {length} prompt_logprobs for {len(ids)} tokens")
    scores: list[TokenScore] = [(0.0, True)]
    for position, (token, alternatives) in enumerate(zip(ids[1:], rows[1:], strict=True), 1):
        alternative = alternatives.get(str(token)) if isinstance(alternatives, Mapping) else None
        if not isinstance(alternative, Mapping):
            raise MalformedReplyError(
                f"token {position} of the prompt has no log-probability: the server has another there"
            )
        value = parse_logprob(alternative.get("logprob"), f"token {position} of the prompt")
        scores.append((value, alternative.get("rank") == 1))
    return scores


def parse_echoed_logprobs(choice: Json, prompt_ids: Sequence[int], new_tokens: int) -> list[TokenScore]:
    """Parse the log-probabilities of a completion with ``echo=True``.

    Args:
        choice: One choice of the reply.
        prompt_ids: The token ids that were sent.
        new_tokens: The number of generated tokens after the prompt; they are dropped.

    Returns:
        For each prompt token its log-probability, and whether it is the most probable one. The first token has no
        context; it counts as ``(0.0, True)``.

    Raises:
        MalformedReplyError: If the reply lacks log-probabilities, or has those of other tokens.

    """
    logprobs = choice.get("logprobs")
    token_logprobs = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(logprobs, Mapping) or not isinstance(token_logprobs, list):
        raise MalformedReplyError("the reply echoes no log-probabilities")
    if len(token_logprobs) != len(prompt_ids) + new_tokens:
        raise MalformedReplyError(
            f"the reply echoes {len(token_logprobs)} log-probabilities for {len(prompt_ids)} + {new_tokens} tokens"
        )
    tokens, top_logprobs = logprobs.get("tokens"), logprobs.get("top_logprobs")
    if not isinstance(top_logprobs, list) or len(top_logprobs) != len(token_logprobs):
        raise MalformedReplyError("the reply has no most probable tokens beside the echoed ones")
    if isinstance(tokens, list):
        _check_tokens(tokens, prompt_ids)
    scores: list[TokenScore] = [(0.0, True)]
    for position in range(1, len(prompt_ids)):
        token_logprob = parse_logprob(token_logprobs[position], f"token {position} of the prompt")
        alternatives = top_logprobs[position]
        if not isinstance(alternatives, Mapping) or not alternatives:
            raise MalformedReplyError(f"token {position} of the prompt has no most probable token beside it")
        highest = max(
            parse_logprob(alternative, f"token {position} of the prompt")
            for alternative in alternatives.values()
        )
        scores.append((token_logprob, token_logprob >= highest))
    return scores


def _check_tokens(tokens: Sequence[Any], ids: Sequence[int]) -> None:
    """Raise ``MalformedReplyError`` if the server names other tokens than were sent."""
    for position, (name, token) in enumerate(zip(tokens, ids, strict=False)):
        if (server_token := parse_token_id(name)) is not None and server_token != token:
            raise MalformedReplyError(
                f"token {position} of the prompt is {token}, and the server has {server_token} there"
            )
