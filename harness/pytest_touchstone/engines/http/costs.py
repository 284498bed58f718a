"""Tokens and money: estimated before a run from the calls it would make, counted in it from what the server says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.core.requests import Request
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.engines.http.planning import Planner

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
class Estimate:
    """The cost of requests: calls, prompt tokens, and new tokens at most. ``exact`` says that prompt tokens are
    counted and not guessed by characters."""

    calls: int
    prompt_tokens: int
    new_tokens: int
    exact: bool
    cost: float | None


def estimate(
    requests: Iterable[Request], planner: Planner, price: tuple[float, float] | None = None
) -> Estimate:
    """Return what it would cost to answer requests, without asking anything."""
    calls = planner.plan(list(requests)).calls
    counts = [_prompt_tokens(call.body or {}) for call in calls]
    prompt = sum(tokens for tokens, _ in counts)
    new = sum(_new_tokens(call.body or {}) for call in calls)
    return Estimate(len(calls), prompt, new, all(exact for _, exact in counts), money(prompt, new, price))


def _prompt_tokens(body: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the number of prompt tokens, and whether it is counted."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt), True
    text = prompt if isinstance(prompt, str) else "".join(one["content"] for one in body.get("messages", ()))
    return max(1, len(text) // CHARACTERS_PER_TOKEN), False


def _new_tokens(body: Mapping[str, Any]) -> int:
    limit = body.get("max_tokens", body.get("max_completion_tokens", 0))
    return int(limit) * int(body.get("n", 1))
