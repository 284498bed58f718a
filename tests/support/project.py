"""A user's small project with one benchmark and its data, for tests of runs of pytest."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record

ALONE = (
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"),
    *("-p", "no:logging"),
    *("-p", "no:unraisableexception", "-p", "no:threadexception", "-p", "no:faulthandler"),
    *("-p", "no:legacypath", "-p", "no:subtests", "-p", "no:unittest", "-p", "no:doctest"),
)
"""Options without which a run writes a cache, imports all of anyio at its start and of hypothesis at its end, adds
two handlers to each of transformers' many loggers three times per item, and calls hooks that do nothing here."""

BENCHMARK = """
from pytest_touchstone import Loglikelihood, Shots, benchmark


@benchmark(
    name="sums", version=1, data="sums/test", asks=Loglikelihood, primary="acc",
    shots=Shots(shot=lambda row: row["q"])
)
def test_sums(example, fewshot):
    '''Which of two sums is likelier.'''
    right, wrong = yield [Loglikelihood(fewshot.text + example["q"], " " + option) for option in example["options"]]
    {extra}
    return {{"acc": right.logprob > wrong.logprob, "margin": right.logprob - wrong.logprob}}
"""


def write_benchmark(path: Path, extra: str = "pass") -> None:
    """Write the benchmark's file, with one more statement between the answers and the scores."""
    path.write_text(BENCHMARK.format(extra=extra), encoding="utf-8")


def declares_metrics(path: Path) -> None:
    """Have the benchmark in a file say which scores it returns, by which a gate is checked before it runs."""
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('primary="acc",', 'primary="acc", metrics=("acc", "margin"),'), encoding="utf-8"
    )


def write_rows(folder: Path, count: int) -> None:
    """Write the benchmark's data below a project's folder."""
    place = folder / "data" / "sums"
    place.mkdir(parents=True, exist_ok=True)
    rows = ({"n": n, "q": f"{n}+1=", "options": [str(n + 1), str(n)]} for n in range(count))
    (place / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def gate_of(folder: Path, run_id: str) -> dict[str, Any]:
    """The gate's section in the summary of a run below the folder."""
    text = (folder / "results" / run_id / "summary.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["gate"]
    return found


class Project:
    """A folder with ``test_sums.py`` and ``data/sums/test.jsonl``; runs pytest in it and reads the results."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.write()
        self.rows(20)

    def write(self, extra: str = "pass", name: str = "test_sums.py") -> None:
        """The benchmark file, with one more statement between the answers and the scores."""
        write_benchmark(self.path / name, extra)

    def rows(self, count: int) -> None:
        """The data."""
        write_rows(self.path, count)

    def run(
        self,
        *arguments: str,
        checkpoint: str = "fake:causal",
        apart: bool = False,
        plugins: Sequence[object] = (),
    ) -> pytest.RunResult:
        """One run of pytest; ``apart`` in a process of its own."""
        start: Callable[..., pytest.RunResult] = (
            self.pytester.runpytest_subprocess
            if apart
            else functools.partial(self.pytester.runpytest, plugins=plugins)
        )
        fixed = ["--checkpoint", checkpoint] if checkpoint else []
        return start(*fixed, "--eval-data", "data", *ALONE, *arguments)

    @property
    def runs(self) -> list[Path]:
        """The folders of all runs."""
        folders = (self.path / "results").glob("*") if (self.path / "results").is_dir() else ()
        return sorted(folder for folder in folders if folder.name not in ("saved", "baselines"))

    @property
    def records(self) -> dict[str, Record]:
        """The records of the only run, by example."""
        (run,) = self.runs
        return {record.example: record for record in latest_records(read_journal(run)).values()}

    @property
    def summary(self) -> dict[str, Any]:
        """``summary.json`` of the only run."""
        (run,) = self.runs
        found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        return found

    def scores(self) -> dict[str, dict[str, float]]:
        """The scores of the only run by example; the run is removed, so that there can be another."""
        scores = {
            example: record.scores for example, record in self.records.items() if record.status == "scored"
        }
        shutil.rmtree(self.path / "results")
        return scores
