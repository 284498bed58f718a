"""Why two results differ across harnesses, as sections of a report (``compare.harnesses``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from pytest_touchstone.compare.harnesses import HarnessAnswer, HarnessDifference
from pytest_touchstone.core.text import count
from pytest_touchstone.document import Facts, Section, Table
from pytest_touchstone.document.formatting import NOTHING, clip, number
from pytest_touchstone.results.store_entry import NOT_KNOWN
from pytest_touchstone.statistics.comparison import POINTS

CAUSE_TEXTS: Final = {
    "scoring": "the same answers, read and judged by other rules",
    "rows": "rows that only one of them has",
    "length": "answers of which one is the beginning of the other: stops, or the limit of tokens",
    "prompts": "other answers to other prompts",
    "answers": "other answers to the same prompts",
}

MOST_SIGNS: Final = 240
"""The characters of a prompt or an answer."""


def harness_sections(difference: HarnessDifference) -> list[Section]:
    """Return why two results of a benchmark differ, and the items that show it best."""
    total = difference.verdicts[1] - difference.verdicts[0]
    causes = Table(
        header=("items", "points", "share", "comes from"),
        rows=tuple(
            (
                f"{len(cause.items):,}",
                POINTS.told(cause.size).removesuffix(" points"),
                f"{100 * cause.size / total:.0f} %" if total else NOTHING,
                CAUSE_TEXTS[cause.name],
            )
            for cause in difference.causes
            if cause.items
        ),
        text_columns=0,
        words=True,
    )
    settings = Table(
        header=("setting", "A", "B"),
        rows=tuple(
            (name, *(NOT_KNOWN if value is None else str(value) for value in pair))
            for name, pair in difference.settings.items()
        ),
        text_columns=3,
    )
    why = Section(
        key=f"why-{difference.benchmark}",
        title=f"{difference.benchmark}: why A and B differ",
        parts=(Facts(tuple(_value_rows(difference))), *(table for table in (causes, settings) if table.rows)),
        data=difference_facts(difference),
    )
    items = tuple(row for item, cause in difference.examples for row in _item_rows(difference, item, cause))
    shown = Section(title=f"{difference.benchmark}: items that show it", parts=(Facts(items),), folded=True)
    return [why, shown] if items else [why]


def _value_rows(difference: HarnessDifference) -> Iterator[tuple[str, str]]:
    for label, pair in (("each by its own rule", difference.verdicts), ("both by ours", difference.scores)):
        moved = POINTS.told(pair[1] - pair[0])
        yield label, f"A {number(pair[0])}, B {number(pair[1])}: {moved}"
    for side, rule in zip("AB", difference.rules, strict=True):
        if rule is not None:
            equal = f"{rule.equal:,} of {count(rule.of, 'verdict')} are those of our {rule.metric}"
            values = f"A {number(rule.values[0])}, B {number(rule.values[1])}"
            yield f"rule of {side}", f"{equal}; both by it: {values}"


def _item_rows(difference: HarnessDifference, item: str, cause: str) -> Iterator[tuple[str, str]]:
    yield cause, item
    for side, answers in zip("AB", difference.answers, strict=True):
        if (answer := answers.get(item)) is not None:
            yield f"  prompt {side}", clip(answer.prompt or NOTHING, MOST_SIGNS, end=True)
            yield f"  answer {side}", clip(answer.answer or NOTHING, MOST_SIGNS)
            yield f"  verdict {side}", _verdict_text(answer)


def _verdict_text(answer: HarnessAnswer) -> str:
    """Return how we read and score an answer, and how its harness does."""
    reads = f" (read {clip(answer.read, 40)!r})" if answer.read else ""
    text = f"{number(answer.score)} by ours{reads}"
    if answer.has_verdict:
        theirs = f" (read {clip(answer.read_there, 40)!r})" if answer.read_there else ""
        text += f", {number(answer.verdict)} by its own{theirs}"
    return text


def difference_facts(difference: HarnessDifference) -> dict[str, Any]:
    """Return the whole finding as plain data, with all items whose verdict or score differs."""
    items = dict.fromkeys(item for cause in difference.causes for item in cause.items)
    return {
        "metric": difference.metric,
        "verdicts": list(difference.verdicts),
        "scores": list(difference.scores),
        "causes": [{**cause._asdict(), "items": list(cause.items)} for cause in difference.causes],
        "rules": [rule and rule._asdict() for rule in difference.rules],
        "settings": {name: list(pair) for name, pair in difference.settings.items()},
        "items": {
            item: [asdict(side[item]) if item in side else None for side in difference.answers]
            for item in items
        },
    }
