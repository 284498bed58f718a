"""A finished run for Python and notebooks: its results, and its items, read on demand.

``build_item_view`` shows an item as people read it. The journal has the requests, answers and scores, and what the
benchmark returned beside the scores: the right choice, the gold answer, and the answer extracted from a text. Where a
benchmark returns none of these it is started again, with the dataset's row and answers in which each choice in turn is
the likeliest. The right choice is the one that gets full marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final, overload

from pytest_touchstone.compare.gate.result import PASSING
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.grade import grade_details
from pytest_touchstone.core.requests import Answer, Refusal, answer_from_plain
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.replay import Replay, ReplayedItem
from pytest_touchstone.results.item_view import (
    CANDIDATES,
    ItemView,
    Question,
    is_right,
    is_shortened,
    questions_of,
    unshown_fields,
)
from pytest_touchstone.results.journal import RecordLocation, read_record_at, record_locations
from pytest_touchstone.results.records import FAULTS, Record
from pytest_touchstone.results.run_directory import RunDirectory, find_run
from pytest_touchstone.results.summary import (
    RESULT_COLUMNS,
    SUMMARY,
    Declaration,
    ResultRow,
    Summary,
    base_name,
    load_summary,
    result_rows,
)

if TYPE_CHECKING:
    import pandas


class FinishedRun:
    """The results of a run: ``results``, ``items``, ``problems``, and data frames of them.

    ``directory`` is the run's folder; ``output`` the text that pytest wrote, empty for a run that was loaded;
    ``exit_code`` that of pytest, None for such a run.
    """

    def __init__(self, directory: Path, *, output: str = "", exit_code: int | None = None) -> None:
        """Read the run; raise ``HarnessError`` where it has not ended."""
        self.directory = directory
        self.output = output
        self.exit_code = exit_code
        self.summary: Summary = load_summary(directory)

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.summary.run_id

    @cached_property
    def results(self) -> tuple[ResultRow, ...]:
        """Every number of the run, as in ``results.csv``: a row per checkpoint, benchmark, group and metric."""
        return tuple(result_rows(self.summary))

    @cached_property
    def items(self) -> Items:
        """The items, each read from the journal when it is asked for."""
        return Items(self.directory, self.summary.declarations)

    @property
    def gate(self) -> dict[str, Any] | None:
        """The gate's verdict, as in the section ``gate`` of ``summary.json``; None without a gate or a baseline."""
        return self.summary.gate

    @property
    def valid(self) -> bool:
        """True if the gate, if any, has passed and no checkpoint or result is invalid."""
        return self._results_valid and not self._gate_problem

    @property
    def _results_valid(self) -> bool:
        """Whether no checkpoint or result is invalid."""
        return (
            not self.summary.failed_to_load and bool(self.results) and all(row.valid for row in self.results)
        )

    @property
    def _gate_problem(self) -> list[str]:
        """The decision of a gate that was asked to decide, and has not passed, in one line."""
        return [self.gate["text"]] if self.gate and self.gate["decision"] not in PASSING else []

    @property
    def left_out(self) -> tuple[str, ...]:
        """The benchmarks and checkpoints that were left out, with their reasons."""
        return tuple(self.summary.deselected)

    @property
    def problems(self) -> tuple[str, ...]:
        """One line per faulty checkpoint, result and item, and for a gate that has not passed."""
        broken = [
            f"{failure['name']} failed to load: {failure['message']}"
            for failure in self.summary.failed_to_load
        ]
        invalid = [
            f"{result.name} of {result.checkpoint} is not valid: {result.invalid}"
            for result in self.summary.results
            if result.invalid
        ]
        load_errors = {
            failure["message"] for failure in self.summary.failed_to_load
        }  # of every item of such a checkpoint
        faults = [
            f"{fault['status']}: {fault['item']}: {fault['message']}"
            for fault in self.summary.faults
            if fault["message"] not in load_errors
        ]
        return (*broken, *invalid, *faults, *self._gate_problem)

    def to_pandas(self) -> pandas.DataFrame:
        """Return ``results`` as a data frame; raise ``HarnessError`` without pandas."""
        return frame([asdict(row) for row in self.results], RESULT_COLUMNS)

    def __repr__(self) -> str:
        from pytest_touchstone.reports.terminal import render

        title = f"run {self.run_id} in {self.directory}{'' if self._results_valid else ': NOT VALID'}"
        lines = [title, render(self.summary, get_terminal_size().columns, color=False)]
        if problems := self.problems:
            first = problems[0].splitlines()[0]
            lines.append(f"{count(len(problems), 'problem')}, in .problems: {first}")
        return "\n".join([*lines, *(f"left out, in .left_out: {text}" for text in self.left_out[:1])])

    def _repr_markdown_(self) -> str:
        from pytest_touchstone.reports.ci import markdown_page

        return markdown_page(self.summary)


def load(run: str | Path, *, output: str | Path = "results") -> FinishedRun:
    """Return a finished run by its folder or id; ``last`` is the newest in ``output``.

    Raises ``HarnessError`` where there is none of that name.
    """
    return FinishedRun(find_run(run, Path(output), SUMMARY))


# Items


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
        return [prompt_of(exchange["request"]) for exchange in self.record.exchanges]

    @property
    def answers(self) -> list[Answer | Refusal]:
        """The answers, in the order of the requests."""
        answers = []
        for exchange in self.record.exchanges:
            answer = dict(exchange["answer"])
            is_error = answer.keys() == {"error"}
            answers.append(
                answer_from_plain(exchange["kind"], {"reason": answer["error"]} if is_error else answer)
            )
        return answers

    @property
    def right(self) -> bool | None:
        """True if the primary score is 1, False below; None without one, or if it is not a fraction of 1."""
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

    def again(self, exchanges: Sequence[Mapping[str, Any]] | None = None) -> ReplayedItem:
        """Return what the benchmark makes of its answers today, or of others; raises ``HarnessError`` as ``row``."""
        return self._replay().run(self.record, exchanges)


class Items(Sequence[Item]):
    """The items of a run in the order in which they were collected, read on demand."""

    def __init__(
        self, directory: Path, declarations: Sequence[Declaration], replay: Replay | None = None
    ) -> None:
        """``replay`` starts items again; without it they are started as in their run."""
        self._directory = directory
        self._given = replay
        hows = {
            declaration.name: aggregation_of(declaration.aggregate, declaration.primary)
            for declaration in declarations
        }
        self._primary = {name: how.score for name, how in hows.items() if how.higher_score_is_better}

    @cached_property
    def _places(self) -> list[RecordLocation]:
        locations = record_locations(self._directory)
        collected, _, _ = RunDirectory(self._directory).read_collected()
        order = {collected_item.item: number for number, collected_item in enumerate(collected)}
        return [locations[item] for item in sorted(locations, key=lambda item: order.get(item, len(order)))]

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
            return [self._item(read_record_at(location)) for location in self._places[index]]
        return self._item(read_record_at(self._places[index]))

    def __iter__(self) -> Iterator[Item]:
        for location in self._places:
            yield self._item(read_record_at(location))

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


# Items as people read them


UNLIKELY: Final = -1e6
"""The log-probability of the choices that a probe does not prefer."""


def build_item_view(item: Item, *, full: bool = False) -> ItemView:
    """Return the item for display; ``full`` has long questions whole, and all words for a mask."""
    notes: list[str] = []
    record, words = (_full_record(item, notes), None) if full else (item.record, CANDIDATES)
    asked = questions_of(record, item.primary, item.right, partial(_right_choices, item), notes, words=words)
    extracted, gold, row = _benchmark_facts(item, asked, notes)
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


def _full_record(item: Item, notes: list[str]) -> Record:
    """Return the record with its requests in full, if the benchmark can ask them again."""
    try:
        if is_shortened(item.record.exchanges):
            return replace(item.record, exchanges=item.again().exchanges)
    except HarnessError as error:
        notes.append(f"the whole question is not known: {error}")
    return item.record


def _right_choices(item: Item, count: int, notes: list[str]) -> list[int] | None:
    """Return the choices for which the benchmark gives its primary score; None where that cannot be found out."""
    if item.record.facts and "right" in item.record.facts:
        return list(item.record.facts["right"])
    right_choices = []
    try:
        for preferred_one in range(count):
            exchanges = [
                {
                    **exchange,
                    "answer": {**exchange["answer"], "logprob": -1.0 if index == preferred_one else UNLIKELY},
                }
                for index, exchange in enumerate(item.record.exchanges)
            ]
            record = item.again(exchanges).record
            if record.status != "scored":
                raise HarnessError(record.message or record.status)
            if record.scores.get(item.primary or "") == 1:
                right_choices.append(preferred_one)
    except HarnessError as error:
        notes.append(f"which choice is right is not known: {error}")
        return None
    return right_choices


# What the benchmark tells


def _benchmark_facts(
    item: Item, asked: Sequence[Question], notes: list[str]
) -> tuple[dict[str, str | None], str | None, dict[str, Any]]:
    """Return the extracted answers, the gold answer, and the fields of the row that were not asked."""
    shown = {question.kind for question in asked}
    if not asked or shown <= {"choices", "FillMask", "RollingLoglikelihood", "PseudoLoglikelihood"}:
        return {}, None, {}
    try:
        row = dict(item.row)
    except HarnessError as error:
        notes.append(f"the row is not known: {error}")
        return {}, None, {}
    others = unshown_fields(asked, row)
    if item.failed or "Generate" not in shown:
        return {}, None, others
    try:
        facts = item.record.facts or grade_details(item.again().returned)
    except HarnessError as error:
        notes.append(f"what was read out of the text is not known: {error}")
        return {}, None, others
    return dict(facts.get("extracted", {})), facts.get("gold"), others
