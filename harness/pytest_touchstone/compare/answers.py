"""The answers of checkpoints to an item, for people to read: the question, the answer, the right one.

Of a run they come from the journal's requests and answers and, where the data is still there, from the item's row; of
lm-evaluation-harness from its samples.

The right answer of a data row is for people to read; scoring never uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.formats.lm_eval import samples_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.metrics.multiple_choice import AnsweredChoices
from pytest_touchstone.results.item_view import CANDIDATES, Said, asked_of, data_rows, is_right
from pytest_touchstone.results.journal import each_record, latest
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import load_summary

UNLIKELY: Final = "not the likeliest"
"""The end of a remark in ``results.asked`` on a continuation that another one is likelier than."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An item in words; ``gold`` is None where it is not known."""

    question: str
    answer: str
    gold: str | None = None


def shown_answers(entry: BenchmarkScores, metric: str, examples: Iterable[str]) -> dict[str, Shown]:
    """The known facts of these items by id; nothing where the answers were not kept. Raises ``HarnessError`` where
    they cannot be read."""
    wanted = set(examples)
    if entry.answers is None or not wanted:
        return {}
    if entry.answers.is_dir():
        return _of_run(entry, entry.answers, metric, wanted)
    benchmark = entry.saved.benchmark
    return {
        example: _of_known_form(_sample, data, metric)
        for example, data in samples_of(entry.answers, benchmark)
        if example in wanted
    }


def first_exchanges(entry: BenchmarkScores) -> list[dict[str, Any]]:
    """The requests and answers of an item of the benchmark in a run's journal; none where they were not kept.

    Raises ``HarnessError`` where the journal cannot be read.
    """
    if entry.answers is None or not entry.answers.is_dir():
        return []
    records = (
        each_record(entry.answers, having=_place_of(entry)) if entry.lines is None else entry.lines.each()
    )
    return next((record.exchanges for record in records if record.exchanges), [])


def _of_known_form(view: Callable[..., Shown], *item: Any) -> Shown:
    """The view of an item; nothing where its form is not that of a known release."""
    try:
        return view(*item)
    except (TypeError, ValueError, IndexError, KeyError):
        return Shown("", "")


# Runs


def _place_of(entry: BenchmarkScores) -> dict[str, list[str]]:
    """The fields of a journal's records that are this result's; of a group, the whole benchmark's."""
    return {
        "benchmark": [entry.saved.benchmark.partition("/")[0]],
        "checkpoint": [entry.saved.checkpoint],
    }


def _of_run(entry: BenchmarkScores, folder: Path, metric: str, wanted: set[str]) -> dict[str, Shown]:
    whole = entry.saved.benchmark.partition("/")[0]
    if entry.lines is None:
        having = {**_place_of(entry), "example": wanted}
        records = [*latest(each_record(folder, having=having)).values()]
    else:
        records = [*entry.lines.of(wanted)]
    rows = _rows(folder, whole, {record.row for record in records})
    return {
        record.example: _of_known_form(_record, record, metric, rows.get(record.row)) for record in records
    }


def _rows(folder: Path, benchmark: str, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """The data rows with these hashes, as far as the data is still in its place."""
    try:
        summary = load_summary(folder)
    except HarnessError:
        return {}
    return {digest: row for digest, row in data_rows(summary, benchmark) if digest in wanted}


def _record(record: Record, metric: str, row: Mapping[str, Any] | None) -> Shown:
    """The item as ``results.asked`` has it, in a question and an answer."""
    asked = asked_of(record, metric, is_right(record.scores.get(metric)), lambda *_: None, [])
    verdicts = [one.answers[0].remark for one in asked if one.kind == "RunProgram"]
    first = next((one for one in asked if one.kind not in VERDICT_KINDS), None)
    gold = gold_of(row) if row else None
    if first is None:
        return Shown("", "", gold)
    if first.choices:
        chosen = [one.text for one in first.choices if one.chosen] if first.kind == "choices" else []
        words = chosen or [one.text for one in first.choices[:CANDIDATES]]
        right = next((one.text for one in first.choices if one.right), None)
        mine, other = (right, gold) if first.kind == "choices" else (gold, right)
        return Shown(first.text, ", ".join(words), mine or other)
    said = first.answers[0] if first.answers else Said("", "")
    if first.kind == "Loglikelihood":
        word = said.text.strip()
        return Shown(
            first.text, "another continuation" if said.remark.endswith(UNLIKELY) else word, gold or word
        )
    if first.kind != "Generate":
        return Shown(first.text, said.remark, gold)
    if len(verdicts) > 1:
        passed = sum(one.startswith("passed") for one in verdicts)
        detail = verdicts[0].partition(": ")[2]
        verdicts = [f"{passed} of {len(verdicts)} passed{f': {detail}' if detail else ''}"]
    return Shown(first.text, f"[{verdicts[0]}] {said.text}" if verdicts else said.text, gold)


# lm-evaluation-harness


def _sample(data: Mapping[str, Any], metric: str) -> Shown:
    arguments = [[str(part) for part in _values(one)] for one in _values(data.get("arguments", ()))]
    question = arguments[0][0] if arguments and arguments[0] else ""
    answers = data.get("filtered_resps") or data.get("resps") or [""]
    target = data.get("target")
    options = [one[1] for one in arguments if len(one) > 1]
    scored = [one for one in answers if isinstance(one, list) and len(one) == 2]
    if len(scored) == len(answers) == len(options) > 1:
        logprobs = [float(one[0]) for one in scored]  # their tokens are not kept
        texts = [text.strip() for text in options]
        best = AnsweredChoices(logprobs, texts, [1] * len(scored)).preferred(metric)
        place = int(str(target)) if str(target).isdecimal() else -1  # a number, as it is or as text
        gold = options[place] if 0 <= place < len(options) else target
        return Shown(question, options[best].strip(), None if gold is None else str(gold).strip())
    first = answers[0]
    answer = first[0] if isinstance(first, list) and first else first
    return Shown(question, str(answer), None if target is None else str(target))


def _values(found: Any) -> Iterator[Any]:
    """The values of a list, or of an object in its order, as releases write one or the other."""
    return iter(found.values() if isinstance(found, Mapping) else found)


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
    return None if value is None else _text_of_gold(value)


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


def _text_of_gold(value: Any) -> str:
    """A list of lists of alternatives as alternatives, anything else as text."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " or ".join(dict.fromkeys(_text_of_gold(one) for one in value))
    return str(value)
