"""The note beside a value over fewer items than its name suggests: ``sample: 32 of 2,376``.

    part      ``12 of 56 items``                    fewer items have a score than the benchmark has with this data
    sample    ``sample: 32 of 2,376``               the shipped rows are a few of those that were published
              ``sample: 12 problems of our own``    the shipped rows are none of those that were published
    rows      ``1,188 rows, 2,376 published``       rows of the user's, not as many as were published
    both      ``4 of 32 items, sample of 2,376``, ``4 of 1,188 items, 2,376 published``

``prompt_mark`` is the mark after a benchmark's name: the number of shots and the chat template.

As many rows as were published may still be other rows: then nothing is said of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SHIPPED: Final = "shipped"
"""The origin of the rows that come with the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSize:
    """The size of a benchmark, or of a group of it.

    ``of`` is the number of its items with this data (after drawing, where it draws), 0 where not known; ``rows`` the
    number of rows of that data; ``published`` how many the published set has, None where that is not declared.
    """

    of: int = 0
    rows: int = 0
    published: int | None = None


PICKS: Final = ("first", "sample")
"""The ways of picking few-shot examples that are not another harness's."""


def prompt_mark(shots: int, template: str | None, pick: str | None = None) -> str:
    """Return the mark of few-shot count and chat template: ``5-shot``, ``5-shot, chat``.

    It is empty without both. Examples that were picked as another harness does say so: ``5-shot as lm-eval``.
    """
    chat = {"chat": "chat", "mixed": "partly chat"}.get(template or "")
    few_shot = f"{shots}-shot" + (f" as {pick}" if pick not in (None, *PICKS) else "")
    return f"{few_shot}, {chat}" if chat else few_shot if shots else ""


def scored_mark(n: int, of: int) -> str:
    """Return ``12 of 56 items`` where ``n`` are fewer, else an empty text."""
    return f"{n:,} of {of:,} items" if n < of else ""


def coverage_mark(n: int, extent: BenchmarkSize, *, origin: str, own_rows: str = "") -> str:
    """Return the whole mark of a value over ``n`` items; empty where nothing needs saying.

    ``origin`` is the source of the rows. ``own_rows`` describes the shipped rows where none of them was published.
    """
    scored = scored_mark(n, extent.of)
    sample = _sample(extent, origin, own_rows, behind=bool(scored))
    return ", ".join(text for text in (scored, sample) if text)


def _sample(extent: BenchmarkSize, origin: str, own_rows: str, *, behind: bool) -> str:
    """Return the mark of the rows; a shorter one where it stands behind the number of items."""
    if origin == SHIPPED and own_rows:
        return f"sample: {own_rows}" if behind else f"sample: {extent.rows:,} {own_rows}"
    if extent.published is None or extent.rows == extent.published:
        return ""
    if origin != SHIPPED:
        return (
            f"{extent.published:,} published"
            if behind
            else f"{extent.rows:,} row{'' if extent.rows == 1 else 's'}, {extent.published:,} published"
        )
    return f"sample of {extent.published:,}" if behind else f"sample: {extent.rows:,} of {extent.published:,}"


def largest_size(text: str) -> int:
    """Return the largest number of items or rows in a mark, 0 without one."""
    numbers = re.findall(r"[0-9][0-9,]{0,15}", text)
    return max((int(number.replace(",", "")) for number in numbers), default=0)


def composite_mark(parts: Iterable[tuple[str, int, int, str]]) -> str:
    """Return the mark of a sum over several benchmarks.

    ``parts`` has for each its name, its scored items, its number of items, and the rest of its mark.
    """
    components = list(parts)
    scored = scored_mark(sum(n for _, n, _, _ in components), sum(max(n, of) for _, n, of, _ in components))
    return ", ".join(
        [*([scored] if scored else []), *(f"{name} {text}" for name, _, _, text in components if text)]
    )
