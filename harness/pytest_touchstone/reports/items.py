"""Items of a run as text: what was asked and answered, the right answer, the scores."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.core.text import count, escape_invisible
from pytest_touchstone.document.formatting import cell_width, console_of
from pytest_touchstone.results.item_view import AnswerChoice, ItemView, Question

INDENT: Final = "  "
LONGEST: Final = 600
"""Characters of a text that are shown; of a longer one the beginning and the end."""

LABELS: Final = {
    "choices": "question",
    "Loglikelihood": "context",
    "RollingLoglikelihood": "text",
    "Generate": "prompt",
    "FillMask": "text",
    "PseudoLoglikelihood": "text",
    "RunProgram": "program",
    "Judge": "judge",
}


def render_item(view: ItemView, width: int, *, full: bool = False) -> str:
    """Return an item as text of at most ``width`` columns.

    With ``full`` no text is shortened. Invisible characters are named.
    """
    return "\n".join(line.rstrip() for line in _lines(_make_visible(view), width, full))


def _make_visible(value: Any) -> Any:
    """Return a copy of nested data with invisible characters named."""
    if isinstance(value, str):
        return escape_invisible(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: _make_visible(getattr(value, field.name)) for field in fields(value)}
        )
    if isinstance(value, Mapping):
        return {_make_visible(name): _make_visible(inner) for name, inner in value.items()}
    return [_make_visible(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _lines(view: ItemView, width: int, full: bool) -> Iterator[str]:
    verdict = {True: "right", False: "wrong", None: view.status}[view.right]
    scores = ", ".join(f"{name} {score:.4g}" for name, score in view.scores.items())
    head = f"{view.example} of {view.checkpoint}: {verdict}{f' ({scores})' if scores else ''}"
    yield from textwrap.wrap(head, width, subsequent_indent=INDENT * 2, break_on_hyphens=False)
    if view.message:
        yield from _text(view.message, width, full, INDENT)
    for asked in view.asked:
        yield from _question_lines(asked, width, full)
    for rule, answer in view.extracted.items():
        yield from _field(f"read by {rule}", "nothing" if answer is None else answer, width, full)
    if view.gold is not None:
        yield from _field("gold", view.gold, width, full)
    for name, value in view.row.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        yield from _field(f"row: {name}", text, width, full)
    for note in view.notes:
        yield from textwrap.wrap(f"note: {note}", width, initial_indent=INDENT, subsequent_indent=INDENT * 2)


def _question_lines(asked: Question, width: int, full: bool) -> Iterator[str]:
    yield f"{INDENT}{LABELS.get(asked.kind, asked.kind)}"
    yield from _text(asked.text, width, full)
    if asked.choices:
        yield f"{INDENT}{'choices' if asked.kind == 'choices' else 'words'}"
    for choice in asked.choices:
        yield from _choice(choice, width, full)
    for number, answer in enumerate(asked.answers, start=1):
        if answer.reasoning and full:
            yield from _field("reasoning", answer.reasoning, width, full)
        elif answer.reasoning:
            yield f"{INDENT}reasoning: {count(len(answer.reasoning), 'character')}, which --full shows"
        several = f" {number}" if len(asked.answers) > 1 else ""
        verdict = asked.kind in VERDICT_KINDS
        yield from textwrap.wrap(
            f"{'verdict' if verdict else 'answer'}{several}: {answer.remark}",
            width,
            initial_indent=INDENT,
            subsequent_indent=INDENT * 2,
            max_lines=None if full else 6,
        )
        yield from _text(answer.text, width, full) if answer.text else ()


def _choice(choice: AnswerChoice, width: int, full: bool) -> Iterator[str]:
    marks = "right" if choice.right else ""
    number = "no token" if choice.logprob is None else f"{choice.logprob:.2f}"
    label = f"{'chosen' if choice.chosen else '':6} {marks:5} {number:>9}  "
    yield from _text(choice.text, width, full, INDENT * 2 + label, INDENT * 2 + " " * len(label))


def _field(label: str, text: str, width: int, full: bool) -> Iterator[str]:
    if "\n" in text or len(label) + len(text) + 4 > width:
        yield f"{INDENT}{label}"
        yield from _text(text, width, full)
    else:
        yield f"{INDENT}{label}: {text}"


def _text(
    text: str, width: int, full: bool, first: str = INDENT * 2, others: str | None = None
) -> Iterator[str]:
    """Yield the lines of a text folded to the width. Lines break at spaces where possible."""
    from rich.text import Text

    others = first if others is None else others
    columns = max(1, width - cell_width(others))
    start = first
    for line in (text if full else shorten(text)).strip("\n").split("\n"):
        for piece in Text(line.expandtabs()).wrap(console_of(columns, color=False), columns):
            yield start + piece.plain
            start = others


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return a text with the middle omitted if long. The number of omitted characters stands in its place."""
    left = len(text) - longest
    if left <= longest // 10:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {count(left, 'character')}; --full shows them ...]\n{text[-half:]}"
