"""The record of one item: the line of the journal from which everything later is computed.

A record is one JSON object per line, ``{"schema": 1, "kind": "item", ...}`` with the fields of ``Record``.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import SCHEMA, check_kind

Status: TypeAlias = Literal["scored", "skipped", "error", "timeout", "lost", "xfailed"]
STATUSES: Final[tuple[Status, ...]] = ("scored", "skipped", "error", "timeout", "lost", "xfailed")

FAULTS: Final = ("error", "timeout", "lost")
"""The statuses of items that should have been scored and were not."""

OPTIONAL_COUNTS: Final = (
    *("trace_only", "reasoned", "reasoning_tokens", "traces_seen", "repeating"),
    *("judged", "no_verdict", "verdicts_at_limit", "joins"),
)
"""The counts that a journal leaves out where they are 0."""

GENERATED: Final = ("outputs", "at_limit", "empty", "no_answer", "chat", "unanswered", *OPTIONAL_COUNTS)
"""The fields of a record that count its generated texts, and verdicts on them; results have their sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCounts:
    """The counts of generated texts, verdicts and programs, of an item or a result.

    All are numbers of texts among ``outputs``: ``at_limit`` for those that ended at the limit of tokens, ``repeating``
    for those of them that repeat a passage, ``empty``, ``no_answer``, and ``chat`` for those asked through a chat
    template. The ``unanswered`` ones are empty: a reasoning used up all tokens, or they are ``trace_only`` and ended
    before the limit. ``reasoned`` are those with a reasoning before the answer, which took ``reasoning_tokens`` in all;
    in ``traces_seen`` one seems to stand in the answer itself.

    ``judged`` are the questions to the judge of the run, of which ``no_verdict`` had none; in ``verdicts_at_limit`` the
    text of the judge was cut at its limit of tokens.

    ``joins`` counts the likelihoods that lm-evaluation-harness computes otherwise: of a continuation whose first token
    begins in the context, and of a whole text before which the tokenizer puts BOS.

    ``programs`` counts programs by outcome, ``unsandboxed`` those that ran without isolation. ``weak_tests`` has, by
    task, the wrong programs that its tests accept, ``missing_modules`` the number of programs by the module that they
    import and the sandbox does not have.
    """

    outputs: int = 0
    at_limit: int = 0
    empty: int = 0
    no_answer: int = 0
    chat: int = 0
    unanswered: int = 0
    trace_only: int = 0
    reasoned: int = 0
    reasoning_tokens: int = 0
    traces_seen: int = 0
    repeating: int = 0
    judged: int = 0
    no_verdict: int = 0
    verdicts_at_limit: int = 0
    joins: int = 0
    programs: dict[str, int] = field(default_factory=dict)
    unsandboxed: int = 0
    weak_tests: dict[str, list[str]] = field(default_factory=dict)
    missing_modules: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(OutputCounts):
    """The outcome of one item.

    ``item`` is its node id; ``example`` its id within the data (``winogrande/17``), the same in every run; ``row``
    the hash of its data row. ``scores`` is empty unless ``status`` is "scored"; ``message`` says why, or which
    assertion failed. ``seconds`` is the item's own share of its batches. ``truncated`` counts its requests whose
    context was cut.

    ``facts`` are what the benchmark returned beside its scores (``core.grade.grade_details``), and ``length``, the
    characters of its first question; None where it was not scored. A line has them as "told".

    ``reused_from`` is the run that scored it, if that is another one. ``exchanges`` holds each request with its
    answer, as plain data.
    """

    item: str
    benchmark: str
    example: str
    checkpoint: str
    status: Status
    scores: dict[str, float] = field(default_factory=dict)
    group: str | None = None
    cluster: str | None = None
    row: str = ""
    message: str | None = None
    seconds: float = 0.0
    truncated: int = 0
    facts: dict[str, Any] | None = None
    reused_from: str | None = None
    exchanges: list[dict[str, Any]] = field(default_factory=list)


_COUNTS: Final = tuple(OutputCounts.__dataclass_fields__)
_OWN: Final = tuple(name for name in Record.__dataclass_fields__ if name not in _COUNTS)

FIELDS: Final = {"told" if name == "facts" else name: name for name in (*_OWN[:-1], *_COUNTS, _OWN[-1])}
"""The names in a line and in a record, in order: readers stop before the message, or before the exchanges."""

_VALUES: Final = operator.attrgetter(*FIELDS.values())


def to_json(record: Record) -> dict[str, Any]:
    """Return the record as a JSON object with its schema version; it shares the record's lists and dicts."""
    made = {"schema": SCHEMA, "kind": "item", **dict(zip(FIELDS, _VALUES(record), strict=True))}
    for name in (*OPTIONAL_COUNTS, "missing_modules"):
        if not made[name]:
            del made[name]
    return made


def from_json(data: dict[str, Any]) -> Record:
    """Return the record that ``to_json`` wrote. Raises ``JournalError`` naming what is wrong with any other
    object."""
    check_kind(data, "item", JournalError)
    fields = {FIELDS[name]: value for name, value in data.items() if name in FIELDS}
    try:
        record = Record(**fields)
    except TypeError as error:
        raise JournalError(f"incomplete item record: {error}") from None
    if record.status not in STATUSES:
        raise JournalError(f"unknown status {record.status!r}; one of {', '.join(STATUSES)}")
    return record
