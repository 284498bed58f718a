"""The rows of a benchmark that the rows of a file answer: found by prompt, by question, by id, or by their order.

    prompt     the file's prompt is the benchmark's own
    question   the file's prompt, or the row of the dataset beside it, has all the words of the benchmark's row in their
               order (in windows of five); of several rows the last in it, since examples stand before a question
    id         a field of both has the same name and value (``task_id``), or it is the item's own id
    order      the file has no prompts, and no ids but numbers: these, else its lines, count the benchmark's rows

The first that finds a row counts. Rows of one name are samples of one row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.engines.answers.files import IDS, AnswerFile, AnswerRow, texts_in

WINDOW: Final = 5
"""The words of a window; a shorter text is one window."""

_WORD: Final = re.compile(r"\w+|[^\w\s]")

SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row of a benchmark: its item's id, its fields, and the prompts that the benchmark makes of it."""

    example: str
    fields: Mapping[str, Any]
    prompts: tuple[str, ...]

    @property
    def ids(self) -> list[tuple[str, str]]:
        """Its names by field; a name that is no number is known without its field, too."""
        ids = [(name, _bare(str(self.fields[name]))) for name in IDS if name in self.fields]
        return [("", self.example), *ids, *(("", text) for _, text in ids if not text.isdecimal())]

    def windows(self) -> set[tuple[str, ...]]:
        """Return the windows of words of its texts that stand in its prompts."""
        asked = "\n".join(self.prompts)
        texts = [text for text in texts_in(self.fields) if text.strip() and text.strip() in asked]
        longest = max((len(_WORD.findall(text)) for text in texts), default=0)
        # Beside a question, a few words such as a choice's say nothing.
        return {
            window
            for text in texts
            if len(words := _WORD.findall(text)) >= min(longest, WINDOW)
            for window in _windows(words)
        }


@dataclass(slots=True)
class Matching:
    """The rows of a file that answer a benchmark's rows, by item id.

    ``ways`` counts the matched rows by the way in which they were found; ``unmatched`` are the others.
    """

    rows: dict[str, list[AnswerRow]] = field(default_factory=dict)
    ways: Counter[str] = field(default_factory=Counter)
    unmatched: list[AnswerRow] = field(default_factory=list)

    def found(self, way: str, example: str, row: AnswerRow) -> None:
        """Keep a matched row."""
        self.rows.setdefault(example, []).append(row)
        self.ways[way] += 1

    def summary(self, file: AnswerFile, benchmark: str, used: int) -> str:
        """Return in a line how rows were matched, how many a run ``used``, and which match nothing."""
        ways = ", ".join(f"{number} by {way}" for way, number in self.ways.items())
        text = f"{self.ways.total()} of its {count(len(file.rows), 'row')} answer {benchmark} ({ways})"
        if used < self.ways.total():
            text += f"; {used} of them answer the items that were selected"
        if self.unmatched:
            names = join_names([row.name for row in self.unmatched], SHOWN)
            text += f"; {len(self.unmatched)} match no row: {names}"
        return text


def match_rows(file: AnswerFile, asked: Sequence[AskedRow]) -> Matching:
    """Match the rows of a file with all rows of a benchmark's data, in their order.

    Among fewer, a row with another question before its own, as an example, would answer that.
    """
    matching = Matching()
    by_prompt = {prompt.strip(): row.example for row in asked for prompt in row.prompts}
    by_id = {name: row.example for row in reversed(asked) for name in row.ids}
    index = _WindowIndex(asked)
    by_position = dict(enumerate(row.example for row in asked))
    positions = _positions(file.rows)
    for number, row in enumerate(file.rows):
        ids = [(name, _bare(text)) for name, text in row.ids.items()]
        prompt = row.provenance.prompt.strip()
        if prompt and (example := by_prompt.get(prompt)) is not None:
            matching.found("prompt", example, row)
        elif (example := index.find(row.question or prompt, matching.rows)) is not None:
            matching.found("question", example, row)
        elif example := next((by_id[name] for name in _id_keys(ids, prompt) if name in by_id), ""):
            matching.found("id", example, row)
        elif positions and (example := by_position.get(positions[number])) is not None:
            matching.found("order", example, row)
        else:
            matching.unmatched.append(row)
    return matching


def _positions(rows: Sequence[AnswerRow]) -> list[int]:
    """Return the index of the benchmark's row that each row answers, where a file has nothing but an order."""
    if any(row.provenance.prompt or row.question for row in rows):
        return []
    names = [next(iter(row.ids.values()), str(number)) for number, row in enumerate(rows)]
    if not all(name.isdecimal() and len(name) < 10 for name in names):
        return []
    numbers = [int(name) for name in names]
    return [number - min(1, *numbers) for number in numbers]  # which begin at 0 or at 1


def _id_keys(ids: Sequence[tuple[str, str]], prompt: str) -> Iterator[tuple[str, str]]:
    """Yield the names by which a row may be found: a number is none beside a prompt that is another's."""
    for name, text in ids:
        if not (prompt and text.isdecimal()):
            yield name, text
            yield "", text


def _bare(name: str) -> str:
    """Return a name without its front, where the rest is a number: ``Mbpp/11`` is also written 11."""
    front, _, number = name.rpartition("/")
    return number if front.lower() == "mbpp" and number.isdecimal() else name


def _windows(words: Sequence[str], size: int = WINDOW) -> Iterator[tuple[str, ...]]:
    """Yield each run of ``size`` words; all words, where they are fewer."""
    for start in range(max(1, len(words) - size + 1)):
        yield tuple(words[start : start + size])


class _WindowIndex:
    """The rows of a benchmark by the windows of their words."""

    def __init__(self, asked: Sequence[AskedRow]) -> None:
        self._windows = {row.example: frozenset(row.windows()) for row in asked}
        self._examples: dict[tuple[str, ...], list[str]] = {}
        for example, windows in self._windows.items():
            for window in windows:
                self._examples.setdefault(window, []).append(example)
        self._lengths = sorted({len(window) for window in self._examples})

    def find(self, text: str, taken: Mapping[str, Sequence[AnswerRow]]) -> str | None:
        """Return the row whose words a text has, None where there is none, or several that differ.

        Of equal rows it is one that has the fewest answers so far.
        """
        words = _WORD.findall(text)
        ends = {
            window: start + length
            for length in self._lengths
            for start, window in enumerate(_windows(words, length))
        }
        hits = Counter(example for window in ends for example in self._examples.get(window, ()))
        whole = {
            example: (max(ends[window] for window in self._windows[example]), number)
            for example, number in hits.items()
            if number == len(self._windows[example])
        }
        last = max(whole.values(), default=None)
        likely = [example for example, place in whole.items() if place == last]
        if len({self._windows[example] for example in likely}) != 1:
            return None
        return min(likely, key=lambda example: len(taken.get(example, ())))
