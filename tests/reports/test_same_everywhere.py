"""One fact, told alike: each form of a report has the same values, intervals, verdicts and best checkpoint."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import random
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.load import find_candidates
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.compare.standings import best_checkpoint, standings_of
from pytest_touchstone.document import render_text
from pytest_touchstone.document.formatting import interval, number
from pytest_touchstone.reports import ci
from pytest_touchstone.reports.best import best_line, best_sections, standings_of_run
from pytest_touchstone.reports.page.builder import run_page, study_page
from pytest_touchstone.reports.score_table import table_of_study
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.summary import Summary, load_summary, results_csv, summary_json, whole_results
from pytest_touchstone.study.advice import advice
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.sections import sections_of
from tests.support import summaries
from tests.support.runs import run

NAMES = ("one-100", "two-200", "three-300")


def results_in(output: Path, run_id: str) -> list[BenchmarkScores]:
    store = ResultStore(output)
    return [BenchmarkScores(saved, store.items(saved)) for saved in store.find() if saved.run_id == run_id]


DECLARED = {
    **{name: summaries.DECLARATIONS[name] for name in ("winogrande", "real_coref", "ko_lambada_wiki")},
    "lambada_openai": dataclasses.replace(summaries.DECLARATIONS["lambada_openai"], primary="perplexity"),
}
"""Two benchmarks of a composite, one that lies in no composite, and one of which lower values are better."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What a run is made of: two checkpoints may score alike on some benchmarks, and one benchmark be not valid."""

    seed: int
    tied: frozenset[str]
    invalid: str | None

    def change(self, records: list[Record]) -> list[Record]:
        broken = next((record.item for record in records if record.benchmark == self.invalid), None)

        def changed(record: Record) -> Record:
            if record.item == broken:
                return dataclasses.replace(record, status="error", scores={}, message="no answer")
            if record.benchmark not in self.tied or record.checkpoint not in NAMES[:2]:
                return record
            draw = random.Random(f"{self.seed} {record.example}")
            scores = {
                name: -draw.expovariate(0.4) if name == "logprob" else float(draw.random() < 0.6)
                for name in record.scores
            }
            return dataclasses.replace(record, scores=scores)

        return [changed(record) for record in records]

    def run(self, output: Path, run_id: str, *names: str, when: int = 1000) -> Path:
        return run(
            output,
            run_id,
            *names,
            seed=self.seed + when,
            when=when,
            declarations=DECLARED,
            change=self.change,
        )


RUNS = st.builds(
    Drawn,
    seed=st.integers(0, 10**6),
    tied=st.frozensets(st.sampled_from([*DECLARED])),
    invalid=st.none() | st.sampled_from([*DECLARED]),
)
WHOLE = RUNS.map(lambda drawn: dataclasses.replace(drawn, invalid=None))
FEW = settings(max_examples=max(4, settings().max_examples // 10))


def summary_of(output: Path, drawn: Drawn) -> Summary:
    folder = drawn.run(output, "one", *NAMES)
    leaders = [standing._asdict() for standing in standings_of(results_in(output, "one"))]
    return dataclasses.replace(load_summary(folder), leaders=leaders)


def words(page: str) -> str:
    """The text of a page, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@FEW
@given(drawn=RUNS)
def test_values_and_the_best_checkpoint_are_the_same_in_every_form(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold_all_forms_together(Path(folder), drawn)


def hold_all_forms_together(output: Path, drawn: Drawn) -> None:
    summary = summary_of(output, drawn)
    study = load_study(["one"], output=output)
    texts = {
        "terminal": " ".join(render(summary, 200, False, details=True).split()),
        "Markdown": html.unescape(ci.markdown_page(summary)),
        "page": words(run_page(summary)),
    }
    rows = list(csv.DictReader(io.StringIO(results_csv(summary))))
    plain = {(row["checkpoint"], row["benchmark"]): row for row in summary_json(summary)["results"]}
    of_study = dict(table_of_study(study).rows)
    for place, benchmark in enumerate(column.benchmark for column in table_of_study(study).columns):
        for result in (result for result in whole_results(summary) if result.benchmark == benchmark):
            metric = result.metrics[result.primary]
            for name, text in texts.items():
                limits = interval(metric.low, metric.high)
                assert re.search(rf"{number(metric.value)}[^\[]{{0,20}}{re.escape(limits)}", text), name
            (row,) = (
                row
                for row in rows
                if (row["checkpoint"], row["benchmark"], row["metric"])
                == (result.checkpoint, benchmark, result.primary)
                and not row["group"]
            )
            told = plain[result.checkpoint, benchmark]["metrics"][result.primary]
            cell = of_study[result.checkpoint][place]
            assert cell is not None
            expected = pytest.approx((metric.value, metric.low, metric.high))
            # A study has a perplexity as the log-probability by which it is compared.
            compared = result.metrics[table_of_study(study).columns[place].metric]
            assert tuple(float(row[field]) for field in ("value", "low", "high")) == expected
            assert tuple(told[field] for field in ("value", "low", "high")) == expected
            assert (cell.value, cell.low, cell.high) == pytest.approx(
                (compared.value, compared.low, compared.high)
            )
    standings = standings_of_run(summary)
    best, line = best_checkpoint(standings), best_line(standings)
    assert best is not None
    for text in (texts["terminal"], texts["page"], words(study_page(study, sections_of(study)))):
        assert line in text
    assert line in " ".join(render_text(best_sections(study), width=80, color=False).split())
    chosen = study.compute_once(advice).checkpoint
    assert chosen is not None
    assert (chosen.point.name, {point.name for point in chosen.rivals}) == (best.checkpoint, set(best.rivals))
    dataclasses.replace(drawn, invalid=None).run(output, "next", "four-400", when=2000)
    source = open_source("best", output, folder=output)
    gate = decide(cases_of(results_in(output, "next"), []), source, GateConfig(mode="plain"))
    assert {line.against.checkpoint for line in gate.lines if line.against is not None} == {best.checkpoint}


@FEW
@given(drawn=WHOLE)
def test_compare_and_the_gate_judge_alike(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold_compare_and_the_gate_together(Path(folder), drawn)


def hold_compare_and_the_gate_together(tmp_path: Path, drawn: Drawn) -> None:
    Drawn(drawn.seed, drawn.tied, None).run(tmp_path, "old", NAMES[0])
    drawn.run(tmp_path, "new", NAMES[1], when=2000)
    source = open_source("old", tmp_path, folder=tmp_path)
    gate = decide(cases_of(results_in(tmp_path, "new"), []), source, GateConfig(mode="plain"))
    pair = compare_pair(*find_candidates(["old", "new"], output=tmp_path))
    told = {line.benchmark: line.comparison for line in gate.lines}
    judged = {name: line.comparison for name, line in pair.judged.items()}
    assert told.keys() == judged.keys()
    for name, comparison in judged.items():
        assert comparison == told[name]
    assert pair.pooled is not None
    assert [line.comparison for line in gate.pooled] == [pair.pooled.comparison]
