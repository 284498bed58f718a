"""The answers of checkpoints to an item, for people to read: the question, the answer, the right one.

Of a run they come from the journal: the requests and answers, and what the benchmark told of them when it scored. Of
lm-evaluation-harness they come from its samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.formats.lm_eval import samples_of
from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.metrics.multiple_choice import AnsweredChoices
from pytest_touchstone.results.item_view import CANDIDATES, ResponseView, is_right, questions_of
from pytest_touchstone.results.journal import iter_records, latest_records
from pytest_touchstone.results.records import Record

UNLIKELY: Final = "not the likeliest"
"""The end of a remark in ``results.asked`` on a continuation that another one is likelier than."""


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """An item in words; ``gold`` is None where it is not known."""

    question: str
    answer: str
    gold: str | None = None


def shown_answers(entry: BenchmarkScores, metric: str, examples: Iterable[str]) -> dict[str, ShownAnswer]:
    """Return the answers to these items by id, or nothing if no answers were kept.

    Raises ``HarnessError`` if they cannot be read.
    """
    wanted = set(examples)
    if entry.answers is None or not wanted:
        return {}
    if entry.answers.is_dir():
        records = read_records(entry, wanted)
        return {record.example: _of_known_form(shown_record, record, metric) for record in records}
    benchmark = entry.saved.benchmark
    return {
        example: _of_known_form(_sample, data, metric)
        for example, data in samples_of(entry.answers, benchmark)
        if example in wanted
    }


def first_exchanges(entry: BenchmarkScores) -> list[dict[str, Any]]:
    """Return the requests and answers of one item from a run's journal; none if not kept.

    Raises ``HarnessError`` if the journal cannot be read.
    """
    if entry.answers is None or not entry.answers.is_dir():
        return []
    records = (
        iter_records(entry.answers, having=_place_of(entry)) if entry.lines is None else entry.lines.each()
    )
    return next((record.exchanges for record in records if record.exchanges), [])


def _of_known_form(view: Callable[..., ShownAnswer], *item: Any) -> ShownAnswer:
    """Return the view of a sample; empty if its layout is not that of a supported release."""
    try:
        return view(*item)
    except (TypeError, ValueError, IndexError, KeyError):
        return ShownAnswer("", "")


# Runs


def _place_of(entry: BenchmarkScores) -> dict[str, list[str]]:
    """Return the fields that select this result's records in a journal; of a group, the whole benchmark's."""
    return {
        "benchmark": [entry.saved.benchmark.partition("/")[0]],
        "checkpoint": [entry.saved.checkpoint],
    }


def read_records(entry: BenchmarkScores, wanted: set[str] | None = None) -> list[Record]:
    """Return the records of a result's items in a run's journal, or the wanted ones; empty without one.

    Raises ``HarnessError`` where it cannot be read.
    """
    if entry.answers is None or not entry.answers.is_dir():
        return []
    if entry.lines is not None:
        return [*(entry.lines.each() if wanted is None else entry.lines.of(wanted))]
    having: dict[str, Any] = {**_place_of(entry), **({} if wanted is None else {"example": wanted})}
    return [*latest_records(iter_records(entry.answers, having=having)).values()]


def shown_record(record: Record, metric: str) -> ShownAnswer:
    """Return the question and the answer of a record."""
    details = record.facts or {}
    right = is_right(record.scores.get(metric))
    asked = questions_of(record, metric, right, lambda *_: details.get("right"), [])
    verdicts = [question.answers[0].remark for question in asked if question.kind == "RunProgram"]
    first = next((question for question in asked if question.kind not in VERDICT_KINDS), None)
    gold = details.get("gold")
    if first is None:
        return ShownAnswer("", "", gold)
    if first.choices:
        chosen = [choice.text for choice in first.choices if choice.chosen and first.kind == "choices"]
        words = chosen or [choice.text for choice in first.choices[:CANDIDATES]]
        gold = next((choice.text for choice in first.choices if choice.right), gold)
        return ShownAnswer(first.text, ", ".join(words), gold)
    response = first.answers[0] if first.answers else ResponseView("", "")
    if first.kind == "Loglikelihood":
        word = response.text.strip()
        answer = "another continuation" if response.remark.endswith(UNLIKELY) else word
        return ShownAnswer(first.text, answer, gold or word)
    if first.kind != "Generate":
        return ShownAnswer(first.text, response.remark, gold)
    if len(verdicts) > 1:
        passed = sum(verdict.startswith("passed") for verdict in verdicts)
        detail = verdicts[0].partition(": ")[2]
        verdicts = [f"{passed} of {len(verdicts)} passed{f': {detail}' if detail else ''}"]
    return ShownAnswer(first.text, f"[{verdicts[0]}] {response.text}" if verdicts else response.text, gold)


# lm-evaluation-harness


def _sample(data: Mapping[str, Any], metric: str) -> ShownAnswer:
    arguments = [
        [str(argument) for argument in _values(request)] for request in _values(data.get("arguments", ()))
    ]
    question = arguments[0][0] if arguments and arguments[0] else ""
    answers = data.get("filtered_resps") or data.get("resps") or [""]
    target = data.get("target")
    options = [request_arguments[1] for request_arguments in arguments if len(request_arguments) > 1]
    scored = [answer for answer in answers if isinstance(answer, list) and len(answer) == 2]
    if len(scored) == len(answers) == len(options) > 1:
        logprobs = [float(answer[0]) for answer in scored]  # their tokens are not kept
        texts = [text.strip() for text in options]
        best = AnsweredChoices(logprobs, texts, [1] * len(scored)).preferred(metric)
        index = int(str(target)) if str(target).isdecimal() else -1  # a number, as it is or as text
        gold = options[index] if 0 <= index < len(options) else target
        return ShownAnswer(question, options[best].strip(), None if gold is None else str(gold).strip())
    first = answers[0]
    answer = first[0] if isinstance(first, list) and first else first
    return ShownAnswer(question, str(answer), None if target is None else str(target))


def _values(container: Any) -> Iterator[Any]:
    """Yield the values of a list, or of an object in its order; releases write either."""
    return iter(container.values() if isinstance(container, Mapping) else container)
