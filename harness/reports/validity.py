"""The results of a run that must not be believed: which they are, why, and what may help.

The end of a run names them below pytest's last line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.core.errors import HarnessError
from harness.core.text import listed
from harness.reports.formatting import place, wrapped
from harness.results.journal import each_record
from harness.results.records import GENERATED
from harness.results.summary import Result, Summary, wholes

FAULTS: Final = {
    "errors": "ended in error",
    "timeouts": "timed out",
    "lost": "never finished",
}
UNUSABLE: Final = {"at_limit": "texts hit the limit of tokens", "no_answer": "texts had no answer"}
TOKENS: Final = "--eval-max-new-tokens"
CHAT: Final = "--eval-chat off"
LOOK: Final = "items-*.jsonl of the run has the outputs"
"""The remedies: an option with a number, an option, or a place to look."""

MOST_LINES: Final = 8
"""Results that are named at the end of a run; a series of many checkpoints may have very many."""


def invalid_results(summary: Summary) -> list[Result]:
    """Return the results that are not valid; groups only if the whole is valid."""
    wrong = {(one.checkpoint, one.benchmark) for one in wholes(summary) if one.invalid}
    return [
        one
        for one in summary.results
        if one.invalid and (one.group is None or (one.checkpoint, one.benchmark) not in wrong)
    ]


def not_valid(summary: Summary) -> list[str]:
    """Return the results that must not be believed, with reasons, and what to do about it; one line per remedy."""
    return [
        f"{listed((f'{name}: {_unusable(summary, one)}' for name, one in same), 4, between='; ')}; {remedy}"
        for remedy, same in _by_remedy(summary).items()
    ]


def options_for_valid(summary: Summary) -> list[str]:
    """Return the options with which a run would have fewer results that are not valid."""
    return [remedy for remedy in _by_remedy(summary) if remedy.startswith("--")]


def last_lines(summary: Summary, width: int) -> list[str]:
    """Return paragraphs of at most ``width`` columns that name the results that are not valid or lack items.

    There is none if all is well.
    """
    found = [
        f"not valid: {listed((name for name, _ in same), MOST_LINES)}; {remedy}"
        for remedy, same in _by_remedy(summary).items()
    ]
    faulty = [one for one in wholes(summary) if one.faults]
    for one in faulty[:MOST_LINES]:
        what = [
            f"{getattr(one, name)} of {one.collected} items {text}"
            for name, text in FAULTS.items()
            if getattr(one, name)
        ]
        found.append(f"not valid: {_short_name(summary, one)}: {', '.join(what)}")
    if len(faulty) > MOST_LINES:
        found.append(f"not valid: {len(faulty) - MOST_LINES} more; see {place(summary)}")
    return [line for text in found for line in wrapped(text, width)]


def _by_remedy(summary: Summary) -> dict[str, list[tuple[str, Result]]]:
    """Return the results that are not valid, with their names, by what may help; those of a benchmark added up."""
    limits: dict[tuple[str, bool], int | None] = {}
    found: dict[str, dict[str, list[Result]]] = {}
    tokens = 0
    for result in invalid_results(summary):
        remedy, unusable = LOOK, _too_many(summary, result)
        if "at_limit" in unusable:
            way = result.benchmark, result.chat == result.outputs
            if way not in limits:  # for which the journal is read
                limits[way] = _limit_of(summary, result)
            if limit := limits[way]:
                remedy, tokens = TOKENS, max(tokens, 2 * limit)
        if remedy == LOOK and "no_answer" in unusable and result.chat == result.outputs:
            remedy = CHAT
        found.setdefault(remedy, {}).setdefault(result.name, []).append(result)
    return {
        f"{TOKENS} {tokens}" if remedy == TOKENS else remedy: [
            _added_up(summary, one) for one in same.values()
        ]
        for remedy, same in found.items()
    }


def _added_up(summary: Summary, results: Sequence[Result]) -> tuple[str, Result]:
    """Return the results of one benchmark as one, with its name."""
    first = results[0]
    if len(results) == 1:
        return _short_name(summary, first), first
    sums = {name: sum(getattr(one, name) for one in results) for name in GENERATED}
    return f"{first.name} of {len(results)} checkpoints", replace(first, **sums)


def _too_many(summary: Summary, result: Result) -> list[str]:
    """Return the counts of unusable outputs that are larger than the benchmark allows."""
    most = {one.name: one.most_unusable for one in summary.declarations}.get(result.benchmark, 0.0)
    return [name for name in UNUSABLE if getattr(result, name) > most * result.outputs]


def _unusable(summary: Summary, result: Result) -> str:
    """Return in a few words why a result is not valid."""
    parts = [
        f"{getattr(result, name)} of {result.outputs} {UNUSABLE[name]}" for name in _too_many(summary, result)
    ]
    return ", ".join(parts) or str(result.invalid)


def _short_name(summary: Summary, result: Result) -> str:
    """Return the result's name; with the checkpoint's where others have the benchmark too."""
    others = {one.checkpoint for one in summary.results if one.benchmark == result.benchmark}
    return f"{result.checkpoint} {result.name}" if len(others) > 1 else result.name


def _limit_of(summary: Summary, result: Result) -> int | None:
    """Return the most tokens that a text of a result could have; None where the journal does not say.

    It is what was given for the run or for this benchmark, else what the benchmark asks for, from the first of its
    items.
    """
    own = {one.name: one.settings for one in summary.declarations}.get(result.benchmark, {})
    if given := {**summary.manifest.get("settings", {}), **own}.get("max_new_tokens"):
        return int(given)
    asked = (
        token_limit(exchange)
        for record in each_record(Path(summary.directory), kind="Generate")
        if (record.benchmark, record.checkpoint) == (result.benchmark, result.checkpoint)
        for exchange in record.exchanges
        if exchange["kind"] == "Generate"
    )
    try:
        return next((limit for limit in asked if limit), None)
    except HarnessError:  # the journal cannot be read
        return None


def token_limit(exchange: Mapping[str, Any]) -> int | None:
    """Return the most tokens of a text, from a request of the journal and its answer.

    A chat's answer has the limit that the request names for chats, if it names one.
    """
    request = exchange["request"]
    chat = exchange["answer"].get("chat") and request.get("turns_max_new_tokens")
    limit = chat or request.get("max_new_tokens")
    return int(limit) if limit else None
