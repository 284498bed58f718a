"""The last lines of a run with something wrong: which results are not valid, and what to do about each."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harness.results.summary import Result, Summary

MOST_LINES: Final = 8
"""Results that are named; a series of many checkpoints may have very many."""

FAULTS: Final = {
    "errors": "ended in error",
    "timeouts": "timed out",
    "lost": "never finished",
}


def last_lines(summary: Summary, width: int, limit_of: Callable[[Result], int | None]) -> list[str]:
    """A paragraph of at most ``width`` columns for each result that is not valid, and for each with items that should
    have been scored and were not; none where all is well. ``limit_of`` gives the most tokens that a text of a result
    could have, if that is known."""
    several = len({result.checkpoint for result in summary.results}) > 1
    most = {one.name: one.most_unusable for one in summary.declarations}
    told, found = _told(summary), []
    for result in told[:MOST_LINES]:  # each may have to be looked up in the journal
        who = f"{result.checkpoint} {result.name}" if several else result.name
        what = [result.invalid.partition(";")[0]] if result.invalid else []
        what += [
            f"{count} of {result.collected} items {text}"
            for name, text in FAULTS.items()
            if (count := getattr(result, name))
        ]
        todo = remedies(result, most.get(result.benchmark, 0.0), limit_of) if result.invalid else ""
        found.append(f"not valid: {who}: {', '.join(what)}{'; ' * bool(todo)}{todo}")
    if len(told) > MOST_LINES:
        found.append(f"not valid: {len(told) - MOST_LINES} more; see {summary.directory}")
    return [line for text in found for line in wrapped(text, width)]


def _told(summary: Summary) -> list[Result]:
    """The whole of a benchmark where something is wrong with it, else those of its groups that are not valid."""
    bad = [result for result in summary.results if result.invalid or result.faults]
    wholes = {(result.checkpoint, result.benchmark) for result in bad if result.group is None}
    return [one for one in bad if one.group is None or (one.checkpoint, one.benchmark) not in wholes]


def token_limit(exchange: Mapping[str, Any]) -> int | None:
    """The most tokens that a benchmark asks for in a text, from a request of the journal and its answer: of a chat's
    answer, whose request has a limit of its own for that, this one."""
    request = exchange["request"]
    chat = exchange["answer"].get("chat") and request.get("turns_max_new_tokens")
    limit = chat or request.get("max_new_tokens")
    return int(limit) if limit else None


def remedies(result: Result, most: float, limit_of: Callable[[Result], int | None]) -> str:
    """What to try where more than ``most`` of a result's outputs were of no use, as an option where one may help."""
    bound = most * result.outputs
    if result.at_limit > bound and (limit := limit_of(result)) is not None:
        return f"try --eval-max-new-tokens {2 * limit}"
    if result.no_answer > bound and result.chat == result.outputs:
        return "try --eval-chat off"
    return "items-*.jsonl of the run has the outputs"


def wrapped(text: str, width: int) -> Sequence[str]:
    """The text in lines of at most ``width`` columns, where its words allow that."""
    return textwrap.wrap(
        text, max(width, 40), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
