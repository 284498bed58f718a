"""Values that a task's own code computes ahead of all programs, and the messages of a program's many answers."""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Sequence
from typing import Any

from . import framing, values
from .wording import sentence


class Prepared:
    """The values that were computed ahead for tests, read out of their messages when they are asked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def __getitem__(self, place: int) -> Any:
        return values.decode(json.loads(self.texts[place]), _plain_only)


def computed(job: dict[str, Any]) -> dict[str, Any]:
    """Return the messages of the values of a list, computed by a task's own code alone."""
    space: dict[str, Any] = {"__name__": "tests"}
    texts: list[str] = []
    try:
        exec(compiled(job["trusted"]), space)
        for value in eval(compile(job["compute"], "<task>", "eval", dont_inherit=True), space):
            texts.append(values.text(value, _plain_only))
            del value  # it may be most of the memory
    except Exception as error:
        where = f"the task's own code fails at value {len(texts)}"
        return {"outcome": "fault", "detail": f"{where}: {sentence(error)}"}
    return {"outcome": "passed", "detail": "", "texts": texts}


def _plain_only(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} is no plain data")


@functools.lru_cache(maxsize=4)  # many jobs have the same
def compiled(trusted: str) -> types.CodeType:
    """Return the code of a task's own source."""
    return compile(trusted, "<task>", "exec", dont_inherit=True)


def parts(found: Any) -> tuple[list[str], dict[str, Any] | None, bool]:
    """Return texts, an exception, and whether these are the last ones, from what a program sent as such."""
    fine = isinstance(found, list) and len(found) == 3 and isinstance(found[0], list)
    if not fine or not all(isinstance(text, str) for text in found[0]):
        raise framing.Closed("an answer that is none")
    texts, error, whole = found
    return (
        texts,
        error if error is None or isinstance(error, dict) else {},
        error is not None or whole is True,
    )


def read_message(text: str) -> Any:
    """Return the message of a text. Raises ``Closed`` for a text that holds none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise framing.Closed(f"no message: {error}") from None
