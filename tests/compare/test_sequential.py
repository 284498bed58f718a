"""A benchmark stops at the first interim analysis that settles its verdict, in whatever process and order of
records."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.sequential import (
    InterimAnalyses,
    SequentialMonitor,
    draw_schedule,
    interim_analyses,
)
from pytest_touchstone.results.journal import JournalFollower
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store import ResultStore
from tests.support import summaries
from tests.support.entries import entry, right, source
from tests.support.runs import run


def analyses_of(
    *baselines: list[float], mode: str = "plain", kind: str = "best", family: int = 1
) -> InterimAnalyses:
    """The interim analyses of a benchmark of a run that finds earlier results with these scores."""
    earlier: list[BenchmarkScores] = [
        entry(scores, checkpoint=f"old-{place}") for place, scores in enumerate(baselines)
    ]
    items = earlier[0].items
    nodes = [f"t.py::test_b[{example}]" for example in items.examples]
    _, schedule = draw_schedule(nodes, items.examples, items.rows, items.clusters, seed=0)
    saved = replace(entry(baselines[0], checkpoint="new", began=2.0).saved, items_sha256="")
    found = interim_analyses(schedule, saved, source(*earlier, kind=kind), GateConfig(mode=mode), family)
    assert found is not None
    return found


def records_of(analyses: InterimAnalyses, scores: dict[str, float]) -> dict[str, Record]:
    """A scored record for every item, by node id, from scores by example."""
    schedule = analyses.schedule
    return {
        item: Record(
            item=item,
            benchmark="b",
            example=example,
            checkpoint="new",
            status="scored",
            scores={"acc": scores[example]},
            row=row,
        )
        for item, example, row in zip(schedule.items, schedule.examples, schedule.rows, strict=True)
    }


def by_example(scores: list[float]) -> dict[str, float]:
    return dict(zip(entry(scores).items.examples, scores, strict=True))


def test_a_large_drop_is_settled_at_an_early_interim_analysis() -> None:
    analyses = analyses_of(right(400, 500))
    found = analyses.advance(records_of(analyses, by_example(right(100, 500))))
    assert found is not None
    assert found.stop is not None
    assert found.stop.kind == "worse"
    assert found.stop.items < 300
    assert found.stop.text == f"settled after {found.stop.items} of 500 items: worse"


def test_the_best_earlier_result_and_the_one_named_stop_a_benchmark_at_the_same_analysis() -> None:
    best, named = analyses_of(right(400, 500)), analyses_of(right(400, 500), kind="run")
    scores = by_example(right(100, 500))
    assert best.schedule.examples != sorted(best.schedule.examples)
    assert best.advance(records_of(best, scores)) == named.advance(records_of(named, scores))


def test_no_interim_analysis_is_taken_before_all_its_items_are_scored() -> None:
    analyses = analyses_of(right(400, 500))
    records = records_of(analyses, by_example(right(0, 500)))
    first = analyses.schedule.items[: analyses.schedule.analyses[0]]
    for missing in (first[0], first[-1]):
        assert analyses.advance({name: one for name, one in records.items() if name != missing}) is None
    assert analyses.advance({name: records[name] for name in first}) is not None


def test_an_item_without_a_score_ends_the_interim_analyses_and_settles_nothing() -> None:
    analyses = analyses_of(right(400, 500))
    records = records_of(analyses, by_example(right(0, 500)))
    name = analyses.schedule.items[0]
    records[name] = Record(item=name, benchmark="b", example="b/0000", checkpoint="new", status="error")
    assert analyses.advance(records) is None


def test_the_last_interim_analysis_settles_in_any_case() -> None:
    analyses = analyses_of(right(30, 50), mode="strict")
    found = analyses.advance(records_of(analyses, by_example(right(30, 50))))
    assert found is not None
    assert found.stop is not None
    assert (found.stop.kind, found.stop.items) == ("inconclusive", 50)


def test_a_strict_gate_does_not_give_up() -> None:
    same = by_example(right(200, 400))
    plain, strict = analyses_of(right(200, 400)), analyses_of(right(200, 400), mode="strict")
    assert plain.advance(records_of(plain, same)).stop.items < 400  # type: ignore[union-attr]
    assert strict.advance(records_of(strict, same)).stop.items == 400  # type: ignore[union-attr]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(40, 120), st.sampled_from([0.2, 0.5, 0.8]))
def test_records_that_come_bit_by_bit_stop_it_where_all_at_once_do(seed: int, n: int, rate: float) -> None:
    draw = random.Random(seed)
    old = [float(draw.random() < 0.6) for _ in range(n)]
    new = by_example([float(draw.random() < rate) for _ in range(n)])
    at_once, in_bits = analyses_of(old), analyses_of(old)
    records = records_of(at_once, new)
    known: dict[str, Record] = {}
    names = list(records)
    draw.shuffle(names)
    for name in names:
        known[name] = records[name]
        in_bits.advance(known)
    assert at_once.advance(records) == in_bits.settled


def test_of_several_baselines_every_interim_analysis_takes_the_one_that_is_best_over_all_items() -> None:
    analyses = analyses_of(right(250, 500), [1.0 - one for one in right(200, 500)])
    found = analyses.advance(records_of(analyses, by_example(right(0, 500))))
    assert found is not None
    assert found.judged.place == 1


def test_the_verdict_of_a_stop_says_after_how_many_items_and_at_which_level() -> None:
    analyses = analyses_of(right(400, 500), family=3)
    found = analyses.advance(records_of(analyses, by_example(right(100, 500))))
    assert found is not None
    assert found.stop is not None
    verdict = found.judged.comparison
    assert (verdict.verdict, verdict.family, verdict.p_adjusted) == ("worse", 3, None)
    assert f"settled after {found.stop.items} of 500 items" in verdict.why
    assert "at this analysis's level" in verdict.why


def test_interim_analyses_take_the_baseline_of_the_final_gate_where_it_judges_by_another_metric(
    tmp_path: Path,
) -> None:
    """By the primary metric of the other benchmark ``a`` would be the best, by the gate's metric ``b``."""

    def score(records: list[Record]) -> list[Record]:
        primary = {"a": 1.0, "b": 0.0, "c": 0.0}
        return [
            replace(
                record,
                scores=dict.fromkeys(record.scores, float(int(record.example.rpartition("/")[2]) % 2))
                if record.benchmark == "winogrande"
                else {
                    name: abs(primary[record.checkpoint] - name.endswith("_strict")) for name in record.scores
                },
            )
            for record in records
        ]

    run(tmp_path, "old", "a", "b", change=score, when=1)
    folder = run(tmp_path, "new", "c", change=score, when=2)
    RunDirectory(folder).write_manifest({"settings": {"seed": 1234, "workers": 2}, "began": 2.0})
    plan = GateConfig(mode="plain", metrics=("real@1_strict",))
    records = JournalFollower(folder).new()
    schedules = {}
    for benchmark in ("winogrande", "real_coref"):
        asked = [record for record in records if record.benchmark == benchmark]
        columns = [
            [getattr(record, name) for record in asked] for name in ("item", "example", "row", "cluster")
        ]
        schedules["c", benchmark] = draw_schedule(*columns, seed=0)[1]
    baselines = open_source("best", tmp_path, folder=tmp_path)
    monitor = SequentialMonitor(
        RunDirectory(folder), schedules, summaries.DECLARATIONS, baselines, plan, JournalFollower(folder)
    )
    store = ResultStore(tmp_path)
    new = [BenchmarkScores(saved, store.items(saved)) for saved in store.find() if saved.run_id == "new"]
    final = decide(cases_of(new, []), baselines, plan)
    early = {name: verdict.judged.against for (_, name), verdict in monitor.early().items()}
    assert {line.benchmark: line.against.checkpoint for line in final.lines if line.against} == {
        "winogrande": "b",
        "real_coref": "b",
    }
    assert {name: against.checkpoint for name, against in early.items() if against} == {
        "winogrande": "b",
        "real_coref": "b",
    }
