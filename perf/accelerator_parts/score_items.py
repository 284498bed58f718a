"""The items that scoring is measured with, and what their requests have at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perf.accelerator_parts.shapes import Sizes
from perf.arithmetic import Tokens, count
from perf.prompts import Item
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.engines.transformers.token_work import ScoringPlan, TokenWork, plan
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

BASE = 32
"""The items of a benchmark before they are repeated."""


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark's items at hand, the sequences of the first of them, and the tokens that all have."""

    name: str
    items: Sequence[Item]
    works: Sequence[TokenWork]
    tokens: Tokens
    sizes: Sizes

    @property
    def requests(self) -> list[Loglikelihood]:
        """Return all requests."""
        return [request for item in self.items for request in item.requests]

    def part(self, requests: int) -> Tokens:
        """Return about what the first so many requests have: distinct tokens in proportion to all."""
        share = requests / len(self.requests)
        return Tokens(
            *(round(share * one) for one in (self.tokens.total, self.tokens.distinct, self.tokens.logits))
        )


def repeated(items: Sequence[Item], count: int) -> list[Item]:
    """Return so many items; a number before the question makes those different that come again.

    Those of one group follow each other, as in a run.
    """
    found = [
        items[number % len(items)]
        if number < len(items)
        else _numbered(items[number % len(items)], number // len(items))
        for number in range(count)
    ]
    return sorted(found, key=lambda item: item.id.rpartition("/")[0])


def _numbered(item: Item, number: int) -> Item:
    """Return the item with a number before its question, which follows the last blank line."""

    def changed(context: str) -> str:
        cut = context.rfind("\n\n") + 2 if "\n\n" in context else 0
        return f"{context[:cut]}({number}) {context[cut:]}"

    return replace(item, requests=tuple(replace(one, context=changed(one.context)) for one in item.requests))


def begun(item: Item, text: str) -> Item:
    """Return the item with a text before everything, so that nothing of it is known already."""
    return replace(item, requests=tuple(replace(one, context=text + one.context) for one in item.requests))


def case_of(name: str, items: Sequence[Item], engine: Any, found: Sizes) -> Case:
    """Return the case; tokens are counted over the first items, and grow in proportion with their number."""
    tokenizer = TextTokenizer(engine.loaded.tokenizer)
    rows = int(engine.loaded.model.get_input_embeddings().weight.shape[0])

    def works(some: Sequence[Item]) -> list[TokenWork]:
        plans = [
            plan(one, tokenizer, seq_len=engine.info.seq_len, rows=rows)
            for item in some
            for one in item.requests
        ]
        return [work for made in plans if isinstance(made, ScoringPlan) for work in made.work]

    some = works(items[: 2 * BASE])
    more = count((work.inputs, work.targets) for work in some)
    if len(items) <= 2 * BASE:
        return Case(name, items, some, more, found)
    few = count((work.inputs, work.targets) for work in works(items[:BASE]))
    return Case(name, items, some, grown(few, more, len(items) / BASE), found)


def grown(few: Tokens, more: Tokens, times: float) -> Tokens:
    """Return the tokens of so many ``times`` the items of ``few``, where ``more`` are those of twice as many."""
    pairs = ((few.total, more.total), (few.distinct, more.distinct), (few.logits, more.logits))
    return Tokens(*(round(a + (times - 1) * (b - a)) for a, b in pairs))
