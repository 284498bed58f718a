"""The results of a run that must not be believed: which they are, why, and what may help.

The end of a run names them below pytest's last line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.document.formatting import place, wrapped
from pytest_touchstone.results.journal import each_record
from pytest_touchstone.results.summary import Result, Summary, added_up, base_name, wholes

FAULTS: Final = {
    "errors": "ended in error",
    "timeouts": "timed out",
    "lost": "never finished",
}
UNUSABLE: Final = {"at_limit": "texts hit the limit of tokens", "no_answer": "texts had no answer"}
TOKENS: Final = "--eval-max-new-tokens"
JUDGE_TOKENS: Final = "--eval-set=judge_tokens"
CHAT: Final = "--eval-chat off"
LOOK: Final = "look at some of them"
ENDLESS: Final = (
    "a longer limit ends no text that repeats itself: leave the benchmark out, or look at its texts"
)
"""The remedies: an option with a number, an option, or words."""

MOST_LINES: Final = 8
"""Results that are named at the end of a run; a series of many checkpoints may have very many."""


class NotValid(NamedTuple):
    """A result that is not valid, or those of one benchmark added up, with its name."""

    name: str
    result: Result


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
        f"{listed((f'{one.name}: {_unusable(summary, one)}' for one in same), 4, between='; ')}; {remedy}"
        for remedy, same in _by_remedy(summary).items()
    ]


def options_for_valid(summary: Summary) -> list[str]:
    """Return the options with which a run would have fewer results that are not valid."""
    return [remedy for remedy in _by_remedy(summary) if remedy.startswith("--")]


def helped(summary: Summary) -> str:
    """Return ``of NAMES`` where the options for valid results help with some of those that are not valid; else
    nothing."""
    found = {remedy: [one.name for one in same] for remedy, same in _by_remedy(summary).items()}
    names = [name for remedy, some in found.items() if remedy.startswith("--") for name in some]
    return f" of {listed(names, 3)}" if len(names) < sum(map(len, found.values())) else ""


def to_look_at(summary: Summary) -> list[str]:
    """Return the arguments of ``touchstone items`` for the texts of results that no option makes valid, if there are
    any."""
    found = [
        one.result
        for remedy, same in _by_remedy(summary).items()
        if remedy in (LOOK, ENDLESS)
        for one in same
    ]
    names = {base_name(one.benchmark) for one in found if _too_many(summary, one)}
    if not names:
        return []
    return [*(["--benchmark", names.pop()] if len(names) == 1 else []), "--invalid"]


def last_lines(summary: Summary, width: int) -> list[str]:
    """Return paragraphs of at most ``width`` columns that name the results that are not valid or lack items.

    There is none if all is well.
    """
    found = [
        f"not valid: {listed((one.name for one in same), MOST_LINES)}; {remedy}"
        for remedy, same in _by_remedy(summary).items()
    ]
    faulty = [one for one in wholes(summary) if one.faults]
    for one in faulty[:MOST_LINES]:
        what = [
            f"{getattr(one, name)} of {one.collected} items {text}"
            for name, text in FAULTS.items()
            if getattr(one, name)
        ]
        found.append(f"not valid: {_short_name(summary, one)}: {', '.join(what)}{_first_fault(summary, one)}")
    if len(faulty) > MOST_LINES:
        found.append(f"not valid: {len(faulty) - MOST_LINES} more; see {place(summary)}")
    return [line for text in found for line in wrapped(text, width)]


def _by_remedy(summary: Summary) -> dict[str, list[NotValid]]:
    """Return the results that are not valid, with their names, by what may help; those of a benchmark added up."""
    found: dict[str, dict[str, list[Result]]] = {}
    tokens = 0
    for result in invalid_results(summary):
        remedy, unusable = LOOK, _too_many(summary, result)
        if "at_limit" in unusable:
            if result.repeating > _most(summary, result) * result.outputs:
                remedy = ENDLESS
            elif limit := _limit(summary, result):
                remedy, tokens = TOKENS, max(tokens, 2 * limit)
        if remedy == LOOK and "no_answer" in unusable and result.chat == result.outputs:
            remedy = CHAT
        if remedy == LOOK and result.verdicts_at_limit:
            remedy = f"{JUDGE_TOKENS}={2 * summary.manifest['settings']['judge_tokens']}"
        found.setdefault(remedy, {}).setdefault(result.name, []).append(result)
    return {
        f"{TOKENS} {tokens}" if remedy == TOKENS else remedy: [
            _added_up(summary, one) for one in same.values()
        ]
        for remedy, same in found.items()
    }


def _added_up(summary: Summary, results: Sequence[Result]) -> NotValid:
    """Return the results of one benchmark as one."""
    first, *others = results
    if not others:
        return NotValid(_short_name(summary, first), first)
    checkpoints = f"{len(results)} checkpoints"
    return NotValid(f"{first.name} of {checkpoints}", added_up(results, checkpoints))


def _too_many(summary: Summary, result: Result) -> list[str]:
    """Return the counts of unusable outputs that are larger than the benchmark allows."""
    most = _most(summary, result) * result.outputs
    return [name for name in UNUSABLE if getattr(result, name) > most]


def _most(summary: Summary, result: Result) -> float:
    """Return the share of unusable outputs that the benchmark allows."""
    return {one.name: one.most_unusable for one in summary.declarations}.get(result.benchmark, 0.0)


def _unusable(summary: Summary, one: NotValid) -> str:
    """Return in a few words why a result is not valid."""
    result = one.result
    too_many = _too_many(summary, result)
    parts = [f"{getattr(result, name)} of {result.outputs} {UNUSABLE[name]}" for name in too_many]
    if "at_limit" in too_many and result.repeating:
        parts[0] += f" ({count(result.repeating, 'repeats itself', 'repeat themselves')})"
    return ", ".join(parts) or str(result.invalid)


def _first_fault(summary: Summary, result: Result) -> str:
    """Return the first item of a result that has no score, and the cause."""
    own = re.compile(rf"[\[-]({re.escape(base_name(result.benchmark))}/[^\]]*)\]$")
    several = len({one.checkpoint for one in summary.results}) > 1
    for fault in summary.faults:
        found = own.search(fault["item"])
        if found is not None and (not several or f"[{result.checkpoint}-" in fault["item"]):
            cause = (fault["message"].strip().splitlines() or ["no reason is known"])[0]
            which = "" if f"({found[1]})" in cause else f" {found[1]}:"
            return f"{':' if result.faults == 1 else '; the first:'}{which} {cause}"
    return ""


def _short_name(summary: Summary, result: Result) -> str:
    """Return the result's name; with the checkpoint's where others have the benchmark too."""
    others = {one.checkpoint for one in summary.results if one.benchmark == result.benchmark}
    return f"{result.checkpoint} {result.name}" if len(others) > 1 else result.name


def _limit(summary: Summary, result: Result) -> int | None:
    """Return the most tokens of a result's texts: that of the run's settings, else that of the first text."""
    own = {one.name: one.settings for one in summary.declarations}.get(result.benchmark, {})
    given = {**summary.manifest.get("settings", {}), **own}.get("max_new_tokens")
    if given:
        return int(given)
    having = {"checkpoint": [result.checkpoint], "benchmark": [result.benchmark]}
    with suppress(HarnessError):  # the journal cannot be read
        records = each_record(Path(summary.directory), kind="Generate", having=having)
        texts = (one for record in records for one in record.exchanges if one["kind"] == "Generate")
        return next(map(token_limit, texts), None)
    return None


def token_limit(exchange: Mapping[str, Any]) -> int | None:
    """Return the most tokens of a text, from a request of the journal and its answer.

    A chat's answer has the limit that the request names for chats, if it names one.
    """
    request = exchange["request"]
    chat = exchange["answer"].get("chat") and request.get("turns_max_new_tokens")
    limit = chat or request.get("max_new_tokens")
    return int(limit) if limit else None
