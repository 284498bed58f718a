"""One fact, told alike: each form of a report has the same values, intervals, verdicts and best checkpoint."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import random
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.formats.run import composite_metric
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import gate_json
from pytest_touchstone.compare.load import find_candidates
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.compare.standings import best_checkpoint, standings_of
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.document import render_text
from pytest_touchstone.document.formatting import interval, number
from pytest_touchstone.reports import ci
from pytest_touchstone.reports.best import best_line, best_sections, standings_of_run
from pytest_touchstone.reports.comparison import LEGEND, pair_facts
from pytest_touchstone.reports.comparison import sections_of as pair_sections
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.reports.pages import comparison_page, run_page, study_page
from pytest_touchstone.reports.score_table import ScoreCell, table_of_study
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.summary import (
    Metric,
    Summary,
    load_summary,
    results_csv,
    summary_json,
    whole_results,
)
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
    "mmlu_stem": dataclasses.replace(
        summaries.DECLARATIONS["mmlu_stem"],
        primary="acc_norm",
        aggregate={"acc_norm": {"by": "mean", "of": "acc_norm", "higher_is_better": False}},
    ),
}
"""Two benchmarks of a composite, one that lies in no composite, and two of which lower values are better."""

COMPOSITE_NAME = "score_wiki"


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What a run is made of: two checkpoints may score alike on some benchmarks.

    Of the ``invalid`` benchmark an item lacks a score, or all texts of a checkpoint were cut off.
    """

    seed: int
    tied: frozenset[str]
    invalid: str | None
    status: Literal["error", "skipped", "cut off"]

    def change(self, records: list[Record]) -> list[Record]:
        broken = next((record for record in records if record.benchmark == self.invalid), None)

        def changed(record: Record) -> Record:
            if record is broken and self.status != "cut off":
                return dataclasses.replace(record, status=self.status, scores={}, message="no answer")
            if record.benchmark not in self.tied or record.checkpoint not in NAMES[:2]:
                return record
            draw = random.Random(f"{self.seed} {record.example}")
            scores = {
                name: -draw.expovariate(0.4) if name == "logprob" else float(draw.random() < 0.6)
                for name in record.scores
            }
            return dataclasses.replace(record, scores=scores)

        records = [changed(record) for record in records]
        if broken is None or self.status != "cut off":
            return records
        cut = broken.benchmark, broken.checkpoint
        return [
            dataclasses.replace(record, outputs=1, at_limit=1)
            if (record.benchmark, record.checkpoint) == cut
            else record
            for record in records
        ]

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
    status=st.sampled_from(["error", "skipped", "cut off"]),
)
NOT_SKIPPED = RUNS.filter(lambda drawn: drawn.status != "skipped")
"""A gate refuses what lacks items of a named run, while a comparison takes those that remain."""
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


def forms_of(summary: Summary) -> dict[str, str]:
    return {
        "terminal": " ".join(render(summary, 200, False, details=True).split()),
        "Markdown": html.unescape(ci.markdown_page(summary)),
        "page": words(run_page(summary)),
    }


def hold_all_forms_together(output: Path, drawn: Drawn) -> None:
    summary = summary_of(output, drawn)
    study = load_study(["one"], output=output)
    texts = forms_of(summary)
    rows = {
        (row["checkpoint"], row["benchmark"], row["metric"]): row
        for row in csv.DictReader(io.StringIO(results_csv(summary)))
        if not row["group"]
    }
    plain = summary_json(summary)
    results = {(row["checkpoint"], row["benchmark"]): row for row in plain["results"] if not row["group"]}
    composites = {(row["checkpoint"], row["name"]): row for row in plain["composites"]}
    of_study = dict(table_of_study(study).rows)
    seen = set()
    for place, column in enumerate(table_of_study(study).columns):
        for result in (result for result in whole_results(summary) if result.benchmark == column.benchmark):
            metric = result.metrics[result.primary]
            same_numbers(
                metric,
                texts,
                rows[result.checkpoint, column.benchmark, metric.name],
                results[result.checkpoint, column.benchmark]["metrics"][metric.name],
                # A study has a perplexity as the log-probability by which it is compared.
                (result.metrics[column.metric], of_study[result.checkpoint][place]),
            )
            seen.add(column.benchmark)
        for row in (row for row in summary.composites if row["name"] == column.benchmark):
            metric = composite_metric(row)
            same_numbers(
                metric,
                texts,
                rows[row["checkpoint"], column.benchmark, COMPOSITE],
                composites[row["checkpoint"], column.benchmark],
                (metric, of_study[row["checkpoint"]][place]),
            )
            seen.add(column.benchmark)
    assert seen == {*DECLARED, COMPOSITE_NAME}
    standings = standings_of_run(summary)
    best, line = best_checkpoint(standings), best_line(standings)
    assert best is not None
    for text in (texts["terminal"], texts["page"], words(study_page(study, sections_of(study)))):
        assert line in text
    assert line in " ".join(render_text(best_sections(study), width=80, color=False).split())
    chosen = study.compute_once(advice).checkpoint
    assert chosen is not None
    assert (chosen.point.name, {point.name for point in chosen.rivals}) == (best.checkpoint, set(best.rivals))
    if drawn.invalid is not None and drawn.status == "skipped":  # a gate compares with what has all its items
        return
    dataclasses.replace(drawn, invalid=None).run(output, "next", "four-400", when=2000)
    source = open_source("best", output, folder=output)
    gate = decide(cases_of(results_in(output, "next"), []), source, GateConfig(mode="plain"))
    assert {line.against.checkpoint for line in gate.lines if line.against is not None} == {best.checkpoint}


def same_numbers(
    metric: Metric,
    texts: Mapping[str, str],
    row: Mapping[str, str],
    plain: Mapping[str, float],
    in_study: tuple[Metric, ScoreCell | None],
) -> None:
    """Hold that texts, a row of CSV, JSON and the study have the value and the interval of a metric."""
    limits = interval(metric.low, metric.high)
    for name, text in texts.items():
        assert re.search(rf"{number(metric.value)}[^\[]{{0,20}}{re.escape(limits)}", text), (name, metric)
    expected = pytest.approx((metric.value, metric.low, metric.high))
    assert tuple(float(row[field]) for field in ("value", "low", "high")) == expected
    assert tuple(plain[field] for field in ("value", "low", "high")) == expected
    compared, cell = in_study
    assert cell is not None
    assert (cell.value, cell.low, cell.high) == pytest.approx((compared.value, compared.low, compared.high))


@FEW
@given(drawn=NOT_SKIPPED)
def test_compare_and_the_gate_judge_alike(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold_compare_and_the_gate_together(Path(folder), drawn)


def hold_compare_and_the_gate_together(output: Path, drawn: Drawn) -> None:
    old = load_summary(dataclasses.replace(drawn, invalid=None).run(output, "old", NAMES[0]))
    new = load_summary(drawn.run(output, "new", NAMES[1], when=2000))
    source = open_source("old", output, folder=output)
    gate = decide(cases_of(results_in(output, "new"), new.composites), source, GateConfig(mode="plain"))
    pair = compare_pair(*find_candidates(["old", "new"], output=output))
    judged = {line.benchmark: line.comparison for line in gate.lines}
    if (
        drawn.invalid is not None and drawn.status == "error"
    ):  # a gate does not even compare what lacks an item
        assert pair.judged[drawn.invalid].comparison.verdict == "inconclusive"
        assert judged.pop(drawn.invalid).verdict is None
    assert judged == {name: line.comparison for name, line in pair.judged.items() if name in judged}
    assert {name for name, line in pair.judged.items() if line.invalid} == {
        line.benchmark for line in gate.lines if line.invalid
    }
    assert pair.pooled is not None
    assert [line.comparison for line in gate.pooled] == [pair.pooled.comparison]
    composite = decide(
        cases_of(results_in(output, "new"), new.composites),
        source,
        GateConfig(mode="plain", metrics=(COMPOSITE_NAME,)),
    ).lines[-1]
    (compared,) = pair.composites
    if composite.comparison.difference is None:  # a benchmark of it lacks an item
        assert compared.comparison.verdict == "inconclusive"
    else:  # a gate corrects a composite together with its benchmarks, so the verdicts may differ
        for name in ("baseline", "new", "difference", "low", "high", "stderr", "p", "flips", "margin"):
            assert getattr(compared.comparison, name) == getattr(composite.comparison, name), name
        assert compared.comparison.why.startswith("not valid") == composite.comparison.why.startswith(
            "not valid"
        )

    new = dataclasses.replace(new, gate=gate_json(gate, decision_text(gate)))
    texts = {
        **forms_of(new),
        "text of compare": " ".join(render_text(pair_sections([pair]), width=300, color=False).split()),
        "Markdown of compare": html.unescape(ci.comparison_page([pair])),
        "page of compare": words(comparison_page([old, new])),
    }
    facts = {row["benchmark"]: row for row in pair_facts(pair)["benchmarks"] if row["primary"]}
    of_page = verdicts_on_page(comparison_page([old, new]))
    for benchmark, comparison in judged.items():
        moved = comparison.told_in.moved
        limits = re.escape(interval(comparison.low, comparison.high, moved))
        pattern = rf"{re.escape(moved(comparison.difference))}[^\[]{{0,60}}{limits}"
        for name, text in texts.items():
            assert re.search(pattern, text), (name, benchmark)
        for row in (facts[benchmark], of_page[benchmark]):
            assert (row["verdict"], row["why"], row["p"], row["p_adjusted"], row["low"], row["high"]) == (
                comparison.verdict,
                comparison.why,
                comparison.p,
                comparison.p_adjusted,
                comparison.low,
                comparison.high,
            )
    for name in ("text of compare", "Markdown of compare", "page of compare"):
        assert LEGEND["*"] in texts[name], name


def verdicts_on_page(page: str) -> dict[str, dict[str, Any]]:
    """Return the verdicts in the data of a page, by benchmark; of all items under an empty name."""
    data = re.search(r'id="page-meta">(.*?)</script>', page, re.S)
    assert data is not None
    meta = json.loads(data[1])
    names: dict[int | None, str] = {index: row["name"] for index, row in enumerate(meta["benchmarks"])}
    names[None] = ""
    return {names[row["benchmark"]]: row for row in meta["verdicts"]}


def test_a_page_has_the_records_of_the_gate_that_has_judged_its_checkpoints(tmp_path: Path) -> None:
    drawn = Drawn(7, frozenset(), None, "error")
    old = load_summary(drawn.run(tmp_path, "old", NAMES[0]))
    new = load_summary(drawn.run(tmp_path, "new", NAMES[1], when=2000))
    plan = GateConfig(mode="plain", margin=0.9, alpha=0.2)
    source = open_source("old", tmp_path, folder=tmp_path)
    gate = decide(cases_of(results_in(tmp_path, "new"), []), source, plan)
    page = comparison_page([old, dataclasses.replace(new, gate=gate_json(gate, ""))])
    of_page = verdicts_on_page(page)
    judged = {**{line.benchmark: line for line in gate.lines}, "": gate.pooled[0]}
    assert of_page.keys() == judged.keys()
    assert "not worse" in {line.comparison.verdict for line in judged.values()}
    for name, line in judged.items():
        row, comparison = of_page[name], line.comparison
        assert (row["verdict"], row["why"]) == (comparison.verdict, comparison.why)
        assert (row["low"], row["high"], row["p"]) == (comparison.low, comparison.high, comparison.p)
    assert "80 % interval" in words(page)
