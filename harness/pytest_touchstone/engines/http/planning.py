"""Requests -> calls to a server, and their replies -> answers; and what they cost. Asks nothing itself.

Each request becomes one call or several, and calls are shared by requests where they ask the same.
``PlannedCalls.take`` is given what came of each call, in any order, and says which requests are answered by it.

Tokens and money are estimated before a run from the calls it would make, and counted in it from what the server says.
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
from pytest_touchstone.engines.http.calls import Call, CallReply, Failure
from pytest_touchstone.engines.http.capabilities import (
    ServedModel,
    ServerCapabilities,
    capabilities_from_plain,
)
from pytest_touchstone.engines.http.generating import (
    ANY_VOCABULARY,
    TAKES,
    Prompted,
    ServedTraces,
    TextSettings,
    answer_of,
    prompted,
    text_calls,
)
from pytest_touchstone.engines.http.scoring import score_calls, split_into_token_steps
from pytest_touchstone.engines.http.tokens import Tokens
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.token_work import ChatMode, ScoringPlan, plan

Made: TypeAlias = ScoringPlan | Prompted | Refusal

ASSUMED: Final = 2048
"""The tokens that a server takes where neither it nor --eval-seq-len says it: the longest window of a text."""


class Planner:
    """Plans for one served model, from what its probe found."""

    def __init__(self, info: CheckpointInfo, settings: ModelSettings, tokens: Tokens | None) -> None:
        """Raise ``CheckpointError`` where a chat template is demanded and missing."""
        served = info.served
        can = capabilities_from_plain(served["abilities"])
        if tokens is not None and tokens.remote is None:
            tokens = replace(tokens, text=tokens.text.with_reasoning(settings.think_end, settings.thinking))
        self._tokens = tokens
        self._limit: int | None = served["limit"]
        self._cut: bool = served["cut"]
        self._seq_len = info.seq_len
        # A price is of all tokens, cached or not.
        self._steps = can.choices and can.block > 0 and settings.price is None
        self.asked = ServedModel(served["api"], served["model"], can)
        self._asking = TextSettings(
            asked=self.asked,
            mode=_mode(info, can, tokens, settings),
            tokenizer=None if tokens is None else tokens.text,
            limit=info.seq_len if self._cut else self._limit,
            cut=self._cut,
            remote=tokens is not None and tokens.remote is not None,
            think_end=settings.think_end,
            thinking=settings.thinking,
        )

    @property
    def traces(self) -> ServedTraces:
        """What the server's texts have shown of traces."""
        return self._asking.traces

    def plan(self, requests: Sequence[Request]) -> PlannedCalls:
        """Return the calls that answer the requests."""
        if self._tokens is not None and self._tokens.remote is not None:
            self._tokens.remote.ahead(lambda: [self._made(request) for request in requests])
        made = [self._made(request) for request in requests]
        return PlannedCalls(self._stepped(made) if self._steps else made, self._asking)

    def too_long(self, requests: Sequence[Request]) -> list[int]:
        """Return the numbers of the requests that would be refused, or cut, for their length."""
        made = enumerate(self._made(request) for request in requests)
        return [
            number
            for number, planned in made
            if (TAKES in planned.reason if isinstance(planned, Refusal) else planned.truncated)
        ]

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal | None:
        """Return turns as the model's chat template writes them; None where it is not used, or not known here."""
        known = self._tokens is not None and self._tokens.template and self._asking.mode.chat
        return self._tokens.text.conversation(turns) if known and self._tokens is not None else None

    @property
    def marks(self) -> frozenset[str]:
        """The texts that are special tokens, as far as the tokenizer is here."""
        if self._tokens is None or self._tokens.remote is not None:
            return frozenset()
        return self._tokens.text.marks

    def _stepped(self, made: list[Made]) -> list[Made]:
        plans = {
            number: planned
            for number, planned in enumerate(made)
            if isinstance(planned, ScoringPlan) and not planned.rolling
        }
        stepped = dict(
            zip(plans, split_into_token_steps(list(plans.values()), self.asked.abilities), strict=True)
        )
        return [stepped.get(number, planned) for number, planned in enumerate(made)]

    def _made(self, request: Request) -> Made:
        try:
            if isinstance(request, Generate):
                return prompted(request, self._asking)
            if isinstance(request, (Loglikelihood, RollingLoglikelihood)):
                return self._scored(request)
        except CheckpointError as error:  # of a tokenizer at the server
            return Refusal(str(error))
        return Refusal(f"a served model does not answer {type(request).__name__}")

    def _scored(self, request: Loglikelihood | RollingLoglikelihood) -> ScoringPlan | Refusal:
        if self._tokens is None or self.asked.abilities.scoring is None:
            return Refusal(self.asked.abilities.why)
        rolling = isinstance(request, RollingLoglikelihood)
        # All tokens of a sequence are sent, and a server wants room for one more.
        room = ANY_VOCABULARY if self._limit is None else self._limit - 2
        most = min(self._seq_len, room) if rolling or self._cut else room
        made = plan(request, self._tokens.text, seq_len=most, rows=ANY_VOCABULARY)
        if isinstance(made, ScoringPlan) and made.truncated and not self._cut:
            (work,) = made.work
            tokens = len(work.inputs) + 1 + made.truncated
            return Refusal(
                f"context and continuation have {tokens} tokens, {TAKES} {most + 1} with room for an "
                f"answer; --eval-seq-len {most} cuts contexts on their left"
            )
        return made


def _mode(
    info: CheckpointInfo, can: ServerCapabilities, tokens: Tokens | None, settings: ModelSettings
) -> ChatMode:
    """Return the way in which texts are asked for: as chats where the model's own files have a template, or, where they
    are not known here, the server has chats."""
    known = tokens is not None and tokens.remote is None
    template = can.chat and (tokens.template if known and tokens is not None else True)
    if settings.chat == "on" and not can.chat:
        raise CheckpointError(
            f"{info.source}: --eval-chat on, but the server answers no chats; use --eval-chat off"
        )
    chat = settings.chat == "on" or (settings.chat == "auto" and (template or not can.completions))
    return ChatMode(
        chat=chat,
        only_chat=settings.chat == "on",
        max_new_tokens=settings.max_new_tokens,
        system=settings.system,
    )


@dataclass(slots=True)
class _Open:
    """A request whose calls have not all ended: the values of its parts so far, in any order, and how many there are;
    ``said`` are the prompt tokens that the server has counted."""

    made: ScoringPlan | Prompted
    count: int
    parts: dict[int, Any] = field(default_factory=dict)
    said: list[int] = field(default_factory=list)

    def answer(self) -> Answer | Refusal:
        parts = [self.parts[part] for part in range(self.count)]
        if isinstance(self.made, Prompted):
            return answer_of(self.made, parts, self.said)
        return self.made.answer(parts)


class PlannedCalls:
    """The calls of some requests, in order, and the answers that can be made so far.

    ``ready`` are the requests that are answered without a call.
    """

    def __init__(self, made: Sequence[Made], asking: TextSettings) -> None:
        self.ready = {number: planned for number, planned in enumerate(made) if isinstance(planned, Refusal)}
        plans = [(number, planned) for number, planned in enumerate(made) if isinstance(planned, ScoringPlan)]
        self._open = {number: _Open(planned, len(planned.work)) for number, planned in plans}
        parts = [(number, part, work) for number, planned in plans for part, work in enumerate(planned.work)]
        scored = score_calls([work for *_, work in parts], [number for number, *_ in parts], asking.asked)
        self.calls: list[Call[Any]] = [asked.call for asked in scored]
        # Of each call: the requests and parts that it answers, and under which key of its value, if not by all of it.
        self._places: list[list[tuple[int, int, int | None]]] = [
            [(*parts[work][:2], work) for work in asked.works] for asked in scored
        ]
        for number, planned in enumerate(made):
            if isinstance(planned, Prompted):
                calls = text_calls(planned, number, asking)
                self._open[number] = _Open(planned, len(calls))
                self._places += [[(number, part, None)] for part in range(len(calls))]
                self.calls += calls

    def take(self, number: int, ended: CallReply[Any] | Failure) -> Iterator[tuple[int, Answer | Refusal]]:
        """Yield the requests that the end of a call answers, each with its answer."""
        for request, part, work in self._places[number]:
            state = self._open.get(request)
            if state is None:
                continue
            if isinstance(ended, Failure):
                del self._open[request]
                yield request, Refusal(ended.reason)
                continue
            state.parts[part] = ended.value if work is None else ended.value[work]
            if (said := ended.usage.get("prompt_tokens")) is not None:
                state.said.append(said)
            if len(state.parts) == state.count:
                del self._open[request]
                yield request, state.answer()


PER: Final = 1_000_000
"""The tokens of a price."""


def parse_price(text: str) -> tuple[float, float]:
    """Return the prices of a million prompt tokens and of a million new ones; raise ``ValueError`` for another text."""
    if not re.fullmatch(r"\s*\d*\.?\d+\s*,\s*\d*\.?\d+\s*", text):
        raise ValueError("two prices per million tokens, of prompts and of texts, such as 0.15,0.6")
    first, _, second = text.partition(",")
    return float(first), float(second)


def money(prompt: int, new: int, price: tuple[float, float] | None) -> float | None:
    """Return what tokens cost at a price; None without one."""
    return None if price is None else (prompt * price[0] + new * price[1]) / PER


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of requests: calls, prompt tokens, and new tokens at most. ``exact`` says that prompt tokens are
    counted and not guessed by characters."""

    calls: int
    prompt_tokens: int
    new_tokens: int
    exact: bool
    cost: float | None


def estimate(
    requests: Iterable[Request], planner: Planner, price: tuple[float, float] | None = None
) -> CostEstimate:
    """Return what it would cost to answer requests, without asking anything."""
    calls = planner.plan(list(requests)).calls
    counts = [_prompt_tokens(call.body or {}) for call in calls]
    prompt = sum(tokens for tokens, _ in counts)
    new = sum(_new_tokens(call.body or {}) for call in calls)
    return CostEstimate(len(calls), prompt, new, all(exact for _, exact in counts), money(prompt, new, price))


def _prompt_tokens(body: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the number of prompt tokens, and whether it is counted."""
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
