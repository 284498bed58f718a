"""A finished run, for Python and notebooks."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from pytest_touchstone.compare.gate.result import PASSING
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.api.items import Items, frame
from pytest_touchstone.results.run_directory import find_run
from pytest_touchstone.results.summary import (
    RESULT_COLUMNS,
    SUMMARY,
    ResultRow,
    Summary,
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
        """True where the gate, if any, has passed and nothing is known against a checkpoint or a result."""
        return self._results_valid and not self._gate_problem

    @property
    def _results_valid(self) -> bool:
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
        """A line per checkpoint, result and item with which something is wrong, and for a gate that has not passed."""
        broken = [f"{one['name']} failed to load: {one['message']}" for one in self.summary.failed_to_load]
        invalid = [
            f"{one.name} of {one.checkpoint} is not valid: {one.invalid}"
            for one in self.summary.results
            if one.invalid
        ]
        told = {one["message"] for one in self.summary.failed_to_load}  # of every item of such a checkpoint
        faults = [
            f"{fault['status']}: {fault['item']}: {fault['message']}"
            for fault in self.summary.faults
            if fault["message"] not in told
        ]
        return (*broken, *invalid, *faults, *self._gate_problem)

    def to_pandas(self) -> pandas.DataFrame:
        """Return ``results`` as a data frame; raise ``HarnessError`` without pandas."""
        return frame([asdict(row) for row in self.results], RESULT_COLUMNS)

    def __repr__(self) -> str:
        from pytest_touchstone.reports.terminal import render

        title = f"run {self.run_id} in {self.directory}{'' if self._results_valid else ': NOT VALID'}"
        return "\n".join(
            [title, render(self.summary, get_terminal_size().columns, color=False), *self._told()]
        )

    def _repr_markdown_(self) -> str:
        from pytest_touchstone.reports.ci import markdown_page

        return markdown_page(self.summary)

    def _told(self) -> list[str]:
        lines = [f"left out, in .left_out: {text}" for text in self.left_out[:1]]
        if problems := self.problems:
            first = problems[0].splitlines()[0]
            lines.insert(0, f"{count(len(problems), 'problem')}, in .problems: {first}")
        return lines


def load(run: str | Path, *, output: str | Path = "results") -> FinishedRun:
    """Return a finished run by its folder or its id; ``last`` is the newest in ``output``, the results folder.

    Raises ``HarnessError`` where there is none of that name.
    """
    return FinishedRun(find_run(run, Path(output), SUMMARY))
