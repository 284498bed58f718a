"""The right answer of a data row, for a person to read; scoring never uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_CHOICES: Final = ("choices", "endings", "options")
_TEXTS: Final = ("target", "answer", "answers", "solution", "canonical_solution", "code", "output")


def gold_of(row: Mapping[str, Any]) -> str | None:
    """The right answer as the row has it; None where no field of a usual name holds one."""
    question = row.get("question")
    nested = question if isinstance(question, Mapping) else row
    if "answerKey" in row:
        return _labelled(nested.get("choices"), str(row["answerKey"]))
    choices = next((row[name] for name in _CHOICES if isinstance(row.get(name), Sequence)), None)
    for name in ("label", "answer"):
        place = _place(row.get(name))
        if choices is not None and place is not None and 0 <= place < len(choices):
            return str(choices[place])
    if "option1" in row:
        return str(row.get(f"option{row.get('answer')}", row.get("answer")))
    value = next((row[name] for name in _TEXTS if row.get(name)), None)
    return None if value is None else _text(value)


def _labelled(choices: Any, key: str) -> str:
    """The text of the choice with this label."""
    if isinstance(choices, Mapping):
        pairs = zip(choices.get("label", ()), choices.get("text", ()), strict=False)
        return next((str(text) for label, text in pairs if label == key), key)
    found = (one for one in choices or () if isinstance(one, Mapping) and one.get("label") == key)
    return str(next(found, {}).get("text", key))


def _place(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _text(value: Any) -> str:
    """A list of lists of alternatives as alternatives, whatever else as text."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " or ".join(dict.fromkeys(_text(one) for one in value))
    return str(value)
