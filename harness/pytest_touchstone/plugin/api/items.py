"""The items of a finished run, for Python: read from the journal as they are asked for.

``view_of`` shows one as people read it. The journal has requests, answers and scores, and what the benchmark told when
it scored: the right choice, the gold answer, and what was read out of a text. Where a benchmark tells nothing it is
started again, with the dataset's row and answers in which each choice in turn is the likeliest. The right one is the
one for which it gives its primary score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.grade import told_by
from pytest_touchstone.core.requests import Answer, Refusal, answer_from_plain
from pytest_touchstone.plugin.replay import Replay, Replayed
from pytest_touchstone.results.item_view import (
    CANDIDATES,
    ItemView,
    Question,
    asked_of,
    is_cut,
    is_right,
    rest_of_row,
)
from pytest_touchstone.results.journal import RecordPlace, places, read_at
from pytest_touchstone.results.records import FAULTS, Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import Declaration, base_name

if TYPE_CHECKING:
    import pandas


def frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pandas.DataFrame:
    """Return the rows as a data frame that begins with these columns; raise ``HarnessError`` without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise HarnessError("to_pandas() needs pandas, which is not installed: pip install pandas") from error
    others = dict.fromkeys(name for row in rows for name in row if name not in columns)
    return pandas.DataFrame(rows, columns=[*columns, *others])


@dataclass(frozen=True, slots=True)
class Item:
    """One example of one benchmark for one checkpoint: what was asked, what was answered, and its scores.

    ``record`` is the line of the journal, whose fields docs/results.md explains. Of long prompts it has the end only.
    """

    record: Record
    primary: str | None
    _replay: Callable[[], Replay] = field(repr=False, compare=False)

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {score:g}" for name, score in self.scores.items())
        return f"<Item {self.example} of {self.checkpoint}: {self.status}{f', {scores}' if scores else ''}>"

    @property
    def example(self) -> str:
        """The id of the row: ``arc_easy/17``."""
        return self.record.example

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return self.record.benchmark

    @property
    def checkpoint(self) -> str:
        """The name of the checkpoint."""
        return self.record.checkpoint

    @property
    def group(self) -> str | None:
        """The group of the benchmark that it belongs to."""
        return self.record.group

    @property
    def status(self) -> str:
        """``scored``, ``skipped``, ``error``, ``timeout`` or ``lost``."""
        return self.record.status

    @property
    def scores(self) -> dict[str, float]:
        """The scores by name; none unless it was scored."""
        return self.record.scores

    @property
    def message(self) -> str | None:
        """The reason why there are no scores."""
        return self.record.message

    @property
    def prompts(self) -> list[str]:
        """The text of each request: its context and continuation, its prompt, or the program."""
        return [prompt_of(one["request"]) for one in self.record.exchanges]

    @property
    def answers(self) -> list[Answer | Refusal]:
        """The answers, in the order of the requests."""
        return [answer_from_plain(one["kind"], _said(one["answer"])) for one in self.record.exchanges]

    @property
    def right(self) -> bool | None:
        """True where the primary score is 1, False below; None where it is no share of 1, or there is none."""
        return is_right(self.scores.get(self.primary or ""))

    @property
    def invalid(self) -> bool:
        """True where a text of it ended at the limit of tokens, or held no answer."""
        return bool(self.record.at_limit or self.record.no_answer)

    @property
    def failed(self) -> bool:
        """True where it should have been scored and was not."""
        return self.status in FAULTS

    @property
    def row(self) -> Mapping[str, Any]:
        """The row of the dataset, found by its id and the hash of its content.

        Raises ``HarnessError`` where the data or the benchmark's file have changed, or are elsewhere.
        """
        return self._replay().job(self.record).example.row

    def again(self, exchanges: Sequence[Mapping[str, Any]] | None = None) -> Replayed:
        """Return what the benchmark makes of its answers today, or of others; raises ``HarnessError`` as ``row``."""
        return self._replay().run(self.record, exchanges)


class Items(Sequence[Item]):
    """The items of a run in the order in which they were collected, each read when it is asked for."""

    def __init__(
        self, directory: Path, declarations: Sequence[Declaration], replay: Replay | None = None
    ) -> None:
        """``replay`` starts items again; without it they are started as in their run."""
        self._directory = directory
        self._given = replay
        hows = {one.name: aggregation_of(one.aggregate, one.primary) for one in declarations}
        self._primary = {name: how.of for name, how in hows.items() if how.higher_score_is_better}

    @cached_property
    def _places(self) -> list[RecordPlace]:
        found = places(self._directory)
        collected, _, _ = RunDirectory(self._directory).read_collected()
        order = {one.item: number for number, one in enumerate(collected)}
        return [found[item] for item in sorted(found, key=lambda item: order.get(item, len(order)))]

    @cached_property
    def _replay(self) -> Replay:
        return self._given or Replay(self._directory)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self._item(read_at(place)) for place in self._places[index]]
        return self._item(read_at(self._places[index]))

    def __iter__(self) -> Iterator[Item]:
        for place in self._places:
            yield self._item(read_at(place))

    def __repr__(self) -> str:
        return f"<{len(self)} items of {self._directory}>"

    def _item(self, record: Record) -> Item:
        primary = self._primary.get(record.benchmark) or self._primary.get(base_name(record.benchmark))
        return Item(record, primary, lambda: self._replay)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row per item and a column per score; raises ``HarnessError`` without pandas."""
        about = ("checkpoint", "benchmark", "group", "example", "status", "right", "message")
        rows = ({**{name: getattr(item, name) for name in about}, **item.scores} for item in self)
        return frame(list(rows), about)


def prompt_of(request: Mapping[str, Any]) -> str:
    """Return the text of a request."""
    if "context" in request:
        return f"{request['context']}{request['continuation']}"
    return str(next((request[name] for name in ("prompt", "text", "program") if name in request), ""))


def _said(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"reason": answer["error"]} if set(answer) == {"error"} else dict(answer)


# Items as people read them


UNLIKELY: Final = -1e6
"""The log-probability of the choices that a probe does not prefer."""


def view_of(item: Item, *, full: bool = False) -> ItemView:
    """Return the item as a person reads it; ``full`` has the whole of long questions, and all words for a mask."""
    notes: list[str] = []
    record, words = (_whole(item, notes), None) if full else (item.record, CANDIDATES)
    asked = asked_of(record, item.primary, item.right, partial(_rights, item), notes, words=words)
    extracted, gold, row = _told(item, asked, notes)
    return ItemView(
        example=item.example,
        benchmark=item.benchmark,
        checkpoint=item.checkpoint,
        group=item.group,
        status=item.status,
        scores=item.scores,
        right=item.right,
        message=item.message,
        asked=asked,
        extracted=extracted,
        gold=gold,
        row=row,
        notes=tuple(dict.fromkeys(notes)),
    )


def _whole(item: Item, notes: list[str]) -> Record:
    """Return the record with its requests in full, which the benchmark asks again; as it is where that cannot be."""
    try:
        if is_cut(item.record.exchanges):
            return replace(item.record, exchanges=item.again().exchanges)
    except HarnessError as error:
        notes.append(f"the whole question is not known: {error}")
    return item.record


def _rights(item: Item, count: int, notes: list[str]) -> list[int] | None:
    """Return the choices for which the benchmark gives its primary score; None where that cannot be found out."""
    if item.record.told and "right" in item.record.told:
        return list(item.record.told["right"])
    found = []
    try:
        for preferred_one in range(count):
            exchanges = [
                {**one, "answer": {**one["answer"], "logprob": -1.0 if place == preferred_one else UNLIKELY}}
                for place, one in enumerate(item.record.exchanges)
            ]
            record = item.again(exchanges).record
            if record.status != "scored":
                raise HarnessError(record.message or record.status)
            if record.scores.get(item.primary or "") == 1:
                found.append(preferred_one)
    except HarnessError as error:
        notes.append(f"which choice is right is not known: {error}")
        return None
    return found


# What the benchmark tells


def _told(
    item: Item, asked: Sequence[Question], notes: list[str]
) -> tuple[dict[str, str | None], str | None, dict[str, Any]]:
    """Return what was read out of the texts, the gold answer, and the fields of the row that were not asked."""
    shown = {one.kind for one in asked}
    if not asked or shown <= {"choices", "FillMask", "RollingLoglikelihood", "PseudoLoglikelihood"}:
        return {}, None, {}
    try:
        row = dict(item.row)
    except HarnessError as error:
        notes.append(f"the row is not known: {error}")
        return {}, None, {}
    others = rest_of_row(asked, row)
    if item.failed or "Generate" not in shown:
        return {}, None, others
    try:
        told = item.record.told or told_by(item.again().returned)
    except HarnessError as error:
        notes.append(f"what was read out of the text is not known: {error}")
        return {}, None, others
    return dict(told.get("extracted", {})), told.get("gold"), others
