"""Turn requests into calls to a server and replies into answers, and estimate their cost. Sends nothing itself.

A request becomes one call or several; equal calls are shared by requests. ``PlannedCalls.take`` receives the end of
each call, in any order, and yields the answers that are complete with it.

Before a run, tokens and money are estimated from the planned calls; during it, they are counted by the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Answer,
    Generate,
    Loglikelihood,
    Refusal,
    Request,
    RollingLoglikelihood,
    Turn,
)
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.engines.http.calls import Call, CallFailure, CallReply
from pytest_touchstone.engines.http.capabilities import (
    ServedModel,
    ServerCapabilities,
    capabilities_from_plain,
)
from pytest_touchstone.engines.http.generating import (
    ANY_VOCABULARY,
    TAKES,
    ObservedTraces,
    ServerPrompt,
    TextSettings,
    build_prompt,
    merge_samples,
    text_calls,
)
from pytest_touchstone.engines.http.scoring import score_calls, split_into_token_steps
from pytest_touchstone.engines.http.tokens import ServedTokenizer
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.token_work import (
    ChatMode,
    ScoringPlan,
    plan,
    takes_system_turn,
)

RequestPlan: TypeAlias = ScoringPlan | ServerPrompt | Refusal

DEFAULT_LIMIT: Final = 2048
"""The window of a text, in tokens, if neither the server nor --eval-seq-len gives a limit."""


class Planner:
    """A planner of the calls for one served model."""

    def __init__(self, info: CheckpointInfo, settings: ModelSettings, tokens: ServedTokenizer | None) -> None:
        """Read what the probe found. Raises ``CheckpointError`` if a chat template is demanded and missing."""
        served = info.served
        abilities = capabilities_from_plain(served["abilities"])
        if tokens is not None and tokens.remote is None:
            tokens = replace(tokens, text=tokens.text.with_reasoning(settings.think_end, settings.thinking))
        self._tokens = tokens
        self._limit: int | None = served["limit"]
        self._cut: bool = served["cut"]
        self._seq_len = info.seq_len
        # Providers charge for all tokens, cached or not.
        self._uses_steps = abilities.choices and abilities.block > 0 and settings.price is None
        self.served_model = ServedModel(served["api"], served["model"], abilities)
        self._text_settings = TextSettings(
            served_model=self.served_model,
            mode=_chat_mode(info, abilities, tokens, settings),
            tokenizer=None if tokens is None else tokens.text,
            limit=info.seq_len if self._cut else self._limit,
            cut=self._cut,
            remote=tokens is not None and tokens.remote is not None,
            think_end=settings.think_end,
            thinking=settings.thinking,
        )

    @property
    def traces(self) -> ObservedTraces:
        """The reasoning traces that the server's texts have shown."""
        return self._text_settings.traces

    def plan(self, requests: Sequence[Request]) -> PlannedCalls:
        """Return the calls that answer the requests."""
        if self._tokens is not None and self._tokens.remote is not None:
            self._tokens.remote.ahead(lambda: [self._plan_request(request) for request in requests])
        planned = [self._plan_request(request) for request in requests]
        return PlannedCalls(self._split_steps(planned) if self._uses_steps else planned, self._text_settings)

    def too_long(self, requests: Sequence[Request]) -> list[int]:
        """Return the indices of the requests that would be refused, or cut, for their length."""
        planned = enumerate(self._plan_request(request) for request in requests)
        return [
            number
            for number, planned in planned
            if (TAKES in planned.reason if isinstance(planned, Refusal) else planned.truncated)
        ]

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal | None:
        """Render turns with the model's chat template; None if there is no template, or it is not used."""
        has_template = self._tokens is not None and self._tokens.template and self._text_settings.mode.chat
        return self._tokens.text.conversation(turns) if has_template and self._tokens is not None else None

    @property
    def marks(self) -> frozenset[str]:
        """The special tokens of the tokenizer, as texts; empty if the tokenizer is at the server."""
        if self._tokens is None or self._tokens.remote is not None:
            return frozenset()
        return self._tokens.text.marks

    def _split_steps(self, planned: list[RequestPlan]) -> list[RequestPlan]:
        """Replace the scoring plans by plans with a step per token, where that costs the server less."""
        plans = {
            number: planned
            for number, planned in enumerate(planned)
            if isinstance(planned, ScoringPlan) and not planned.rolling
        }
        stepped = dict(
            zip(plans, split_into_token_steps(list(plans.values()), self.served_model.abilities), strict=True)
        )
        return [stepped.get(index, request_plan) for index, request_plan in enumerate(planned)]

    def _plan_request(self, request: Request) -> RequestPlan:
        try:
            if isinstance(request, Generate):
                return build_prompt(request, self._text_settings)
            if isinstance(request, (Loglikelihood, RollingLoglikelihood)):
                return self._plan_scoring(request)
        except CheckpointError as error:  # of a tokenizer at the server
            return Refusal(str(error))
        return Refusal(f"a served model does not answer {type(request).__name__}")

    def _plan_scoring(self, request: Loglikelihood | RollingLoglikelihood) -> ScoringPlan | Refusal:
        if self._tokens is None or self.served_model.abilities.scoring is None:
            return Refusal(self.served_model.abilities.why)
        rolling = isinstance(request, RollingLoglikelihood)
        # All tokens of a sequence are sent, and a server wants room for one more.
        room = ANY_VOCABULARY if self._limit is None else self._limit - 2
        max_length = min(self._seq_len, room) if rolling or self._cut else room
        scoring = plan(request, self._tokens.text, seq_len=max_length, rows=ANY_VOCABULARY)
        if isinstance(scoring, ScoringPlan) and scoring.truncated and not self._cut:
            (work,) = scoring.work
            tokens = len(work.inputs) + 1 + scoring.truncated
            return Refusal(
                f"context and continuation have {tokens} tokens, {TAKES} {max_length + 1} with room for an "
                f"answer; --eval-seq-len {max_length} cuts contexts on their left"
            )
        return scoring


def _chat_mode(
    info: CheckpointInfo, can: ServerCapabilities, tokens: ServedTokenizer | None, settings: ModelSettings
) -> ChatMode:
    """Return how texts are generated: as chats if the model's files (or else the server) have a chat template."""
    is_local = tokens is not None and tokens.remote is None
    has_chats = can.chat and (tokens.template if is_local and tokens is not None else True)
    if settings.chat == "on" and not can.chat:
        raise CheckpointError(
            f"{info.source}: --eval-chat on, but the server answers no chats; use --eval-chat off"
        )
    chat = settings.chat == "on" or (settings.chat == "auto" and (has_chats or not can.completions))
    return ChatMode(
        chat=chat,
        only_chat=settings.chat == "on",
        max_new_tokens=settings.max_new_tokens,
        system=settings.system,
        takes_system=not (is_local and has_chats) or tokens is None or takes_system_turn(tokens.text),
    )


@dataclass(slots=True)
class _PendingRequest:
    """A request whose calls have not all ended.

    ``parts`` has the values of ended calls by their index below ``count``; ``counted`` the server's counts of prompt
    tokens.
    """

    plan: ScoringPlan | ServerPrompt
    count: int
    parts: dict[int, Any] = field(default_factory=dict)
    counted: list[int] = field(default_factory=list)

    def answer(self) -> Answer | Refusal:
        parts = [self.parts[part_index] for part_index in range(self.count)]
        if isinstance(self.plan, ServerPrompt):
            return merge_samples(self.plan, parts, self.counted)
        return self.plan.answer(parts)


class PlannedCalls:
    """The calls of several requests, and the parts of their answers that have arrived.

    ``ready`` has the refusals of requests that need no call, by the index of the request.
    """

    def __init__(self, request_plans: Sequence[RequestPlan], settings: TextSettings) -> None:
        self.ready = {index: plan for index, plan in enumerate(request_plans) if isinstance(plan, Refusal)}
        scoring = [(index, plan) for index, plan in enumerate(request_plans) if isinstance(plan, ScoringPlan)]
        self._pending = {index: _PendingRequest(plan, len(plan.work)) for index, plan in scoring}
        works = [
            (index, part_index, work) for index, plan in scoring for part_index, work in enumerate(plan.work)
        ]
        shared = score_calls(
            [work for *_, work in works], [index for index, *_ in works], settings.served_model
        )
        self.calls: list[Call[Any]] = [score_call.call for score_call in shared]
        # For each call: the requests and parts that it answers, and the key of its value (None: the whole value).
        self._targets: list[list[tuple[int, int, int | None]]] = [
            [(*works[work][:2], work) for work in score_call.works] for score_call in shared
        ]
        for index, prompt in enumerate(request_plans):
            if isinstance(prompt, ServerPrompt):
                calls = text_calls(prompt, index, settings)
                self._pending[index] = _PendingRequest(prompt, len(calls))
                self._targets += [[(index, part_index, None)] for part_index in range(len(calls))]
                self.calls += calls

    def take(
        self, call_index: int, outcome: CallReply[Any] | CallFailure
    ) -> Iterator[tuple[int, Answer | Refusal]]:
        """Yield the indices and answers of the requests that the end of a call completes."""
        for index, part_index, work in self._targets[call_index]:
            request = self._pending.get(index)
            if request is None:
                continue
            if isinstance(outcome, CallFailure):
                del self._pending[index]
                yield index, Refusal(outcome.reason)
                continue
            request.parts[part_index] = outcome.value if work is None else outcome.value[work]
            if (counted := outcome.usage.get("prompt_tokens")) is not None:
                request.counted.append(counted)
            if len(request.parts) == request.count:
                del self._pending[index]
                yield index, request.answer()


TOKENS_PER_PRICE: Final = 1_000_000
"""The number of tokens that a price is for."""


def parse_price(text: str) -> tuple[float, float]:
    """Parse the prices of a million prompt tokens and of a million new ones. Raises ``ValueError``."""
    if not re.fullmatch(r"\s*\d*\.?\d+\s*,\s*\d*\.?\d+\s*", text):
        raise ValueError("two prices per million tokens, of prompts and of texts, such as 0.15,0.6")
    first, _, second = text.partition(",")
    return float(first), float(second)


def token_cost(prompt: int, new: int, price: tuple[float, float] | None) -> float | None:
    """Return the cost of tokens, or None without a price."""
    return None if price is None else (prompt * price[0] + new * price[1]) / TOKENS_PER_PRICE


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of requests: calls, prompt tokens, and at most ``new_tokens``.

    ``exact``: prompt tokens are counted, and not estimated from characters.
    """

    calls: int
    prompt_tokens: int
    new_tokens: int
    exact: bool
    cost: float | None


def estimate(
    requests: Iterable[Request], planner: Planner, price: tuple[float, float] | None = None
) -> CostEstimate:
    """Estimate the cost of requests without sending anything."""
    calls = planner.plan(list(requests)).calls
    counts = [_prompt_tokens(call.body or {}) for call in calls]
    prompt = sum(tokens for tokens, _ in counts)
    new = sum(_new_tokens(call.body or {}) for call in calls)
    return CostEstimate(
        len(calls), prompt, new, all(exact for _, exact in counts), token_cost(prompt, new, price)
    )


def _prompt_tokens(body: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the number of prompt tokens, and whether it is exact."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt), True
    text = (
        prompt if isinstance(prompt, str) else "".join(turn["content"] for turn in body.get("messages", ()))
    )
    return max(1, len(text) // CHARACTERS_PER_TOKEN), False


def _new_tokens(body: Mapping[str, Any]) -> int:
    limit = body.get("max_tokens", body.get("max_completion_tokens", 0))
    return int(limit) * int(body.get("n", 1))
