"""DROP: bags of words of an answer's spans against those of the gold answer, and exact match.

The rules are those of the dataset's evaluator (``drop_eval.py`` of AllenNLP), as lm-evaluation-harness 0.4.13
has them (``tasks/drop``):

1. A span is split at every space and hyphen, and nowhere else. Each piece is put in lower case and loses ASCII
   punctuation, unless it is a number as it stands. It is then written as a floating-point number if it is one now
   ("12" and "12.0" are the same, "3.5%" is 35.0), and loses the articles a, an, the. Hyphens split, so a
   number has no sign. A new line does not split: in "12\\npain" the 12 is not a number.
2. The bag of a span is the *set* of its words. Two bags score their F1, but 0 if the gold one has numbers and
   shares none with the other.
3. Spans are paired one to one so that the sum of F1 is highest; a span without a partner scores 0. The F1 of
   an answer is the mean over the larger number of spans, rounded to two decimals (as NumPy does, halves to
   even). It is an exact match if both have the same spans, as sets, and the same number of them.
4. Of several gold answers the best F1 and the best exact match count, each for itself. One whose first span
   is blank does not count.

A prediction is one string (what lm-evaluation-harness scores: it can pair with one span only), or a list of
spans, which ``listed_spans`` reads out of a text.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from typing_extensions import TypedDict

from pytest_touchstone.core.grade import Graded

PIECES: Final = re.compile("[ -]")
ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
SEPARATORS: Final = re.compile(r"[;\n]|,?\sand\s|,\s")


class DropMatch(NamedTuple):
    """Exact match and F1 of one prediction against one gold answer."""

    em: float
    f1: float


def grade_drop(golds: Sequence[Sequence[str]], prediction: str | Sequence[str]) -> Graded:
    """Grade a prediction, one string or a list of spans, against every gold answer (each a list of spans).

    The grade's ``gold`` is the answer that gave the best F1.
    """
    spans = (prediction,) if isinstance(prediction, str) else tuple(prediction)
    counted = [gold for gold in golds if gold and gold[0].strip()]
    matches = [compare(spans, gold) for gold in counted]
    best = max(range(len(matches)), key=lambda index: matches[index].f1, default=None)
    return Graded(
        scores={name: max((getattr(match, name) for match in matches), default=0.0) for name in ("f1", "em")},
        no_answer=not any(normalize_span(span) for span in spans),
        extracted={"spans": " | ".join(spans)},
        gold=None if best is None else " | ".join(counted[best]),
        same=is_same_span,
    )


def compare(prediction: Sequence[str], gold: Sequence[str]) -> DropMatch:
    """Return exact match and rounded F1 of a prediction's spans against those of one gold answer."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    predicted, wanted = [normalize_span(span) for span in prediction], [normalize_span(span) for span in gold]
    exact = len(predicted) == len(wanted) and set(predicted) == set(wanted)
    if not predicted or not wanted:
        return DropMatch(float(exact), 0.0)
    table = np.array(
        [[bag_f1(set(ours.split()), set(theirs.split())) for ours in predicted] for theirs in wanted]
    )
    rows, columns = linear_sum_assignment(table, maximize=True)
    each = np.zeros(max(len(predicted), len(wanted)))
    each[rows] = table[rows, columns]
    return DropMatch(float(exact), float(np.round(each.mean(), 2)))


def bag_f1(predicted: set[str], gold: set[str]) -> float:
    """Return F1 of two sets of words; 0 if the gold one has numbers and none was predicted."""
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & predicted:
        return 0.0
    shared = len(predicted & gold)
    precision = shared / len(predicted) if predicted else 1.0
    recall = shared / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def is_same_span(left: str, right: str) -> bool:
    """Return whether two spans are equal by exact match."""
    return normalize_span(left) == normalize_span(right)


def normalize_span(span: str) -> str:
    """Return the words of a span as they are compared, with one space between them."""
    return " ".join(filter(None, (_word(piece) for piece in PIECES.split(span))))


def listed_spans(output: str) -> tuple[str, ...]:
    """Return the spans of an answer that lists several: parted by a new line, ``;``, ``, `` or ``and``.

    This rule is ours: the reference takes lists as given. A comma inside a number parts nothing; a span that
    has a comma or an "and" in it is split, and scores less than it would as one string.
    """
    return tuple(filter(None, (span.strip(" \t\r.") for span in SEPARATORS.split(output))))


def gold_answers(
    answer: Mapping[str, Any], validated: Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]] = ()
) -> tuple[tuple[str, ...], ...]:
    """Return the gold answers of a row in the dataset's own form, in order, without duplicates.

    ``validated`` is a list of answers, or the columns of one, as the ``datasets`` library stores it.
    """
    if isinstance(validated, Mapping):
        columns = validated
        count = len(columns.get("number", ()))
        validated = [{name: column[row] for name, column in columns.items()} for row in range(count)]
    return tuple(dict.fromkeys(answer_spans(validated_answer) for validated_answer in (answer, *validated)))


def answer_spans(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the spans of ``{number, spans, date: {day, month, year}}``: the first of the three that is there."""
    if (number := answer.get("number", "")) != "":
        return (str(number),)
    if spans := answer.get("spans"):
        return tuple(spans)
    date = answer.get("date") or {}
    return (" ".join(date.get(unit, "") for unit in ("day", "month", "year")).strip(),)


def _word(piece: str) -> str:
    word = piece.lower()
    if not _is_number(word):
        word = word.translate(PUNCTUATION)
    if _is_number(word):
        word = str(float(word))
    return " ".join(ARTICLES.sub(" ", word).split())


def _is_number(word: str) -> bool:
    """Return whether Python reads the word as a float: also ``1e5``, ``1_000``, ``nan``, and digits of any script."""
    try:
        float(word)
    except ValueError:
        return False
    return True


class DropRow(TypedDict):
    """A passage, a question, and the answers that count as right, each a list of spans."""

    passage: str
    question: str
    answers: list[list[str]]
    passage_sha256: str


def with_passage_hash(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with ``passage_sha256``, the hash of its ``passage``, for use as ``cluster=``.

    Questions about one text are not independent.
    """
    digest = hashlib.sha256(row["passage"].encode("utf-8", "surrogatepass")).hexdigest()
    return {**row, "passage_sha256": digest[:16]}


def drop_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with ``answers`` as lists of spans; the authors' form has ``answer`` and ``validated_answers``."""
    if "answers" in row:
        answers = row["answers"]
    else:
        golds = gold_answers(row["answer"], row.get("validated_answers") or ())
        answers = [list(spans) for spans in golds]
    return with_passage_hash({**row, "answers": answers})
