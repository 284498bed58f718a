"""What is compared by a metric that no score's mean tells: by its own value, or not at all."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.comparison_verdicts import NOT_COMPARED, compare
from pytest_touchstone.compare.corpus_metrics import draws_of
from pytest_touchstone.compare.formats.lm_eval import read_lm_eval
from pytest_touchstone.compare.gate.accepted import drop_of
from pytest_touchstone.compare.gate.config import BenchmarkRules, Floor, GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.compare.pair import compare_pair, split_by_group
from pytest_touchstone.compare.plan import make_plan, planned_benchmarks
from pytest_touchstone.compare.sequential import draw_schedule, interim_analyses
from pytest_touchstone.compare.standings import standings_of
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.composite import parse_composite
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import items_from_json, items_json
from tests.support.aggregates import FINDS, FREQUENT, LARGEST, RIGHT, N, chosen, waited
from tests.support.entries import entry, right, source
from tests.support.lines import missing


def gate(new: BenchmarkScores, *old: BenchmarkScores, **plan: Any) -> GateResult:
    return decide(cases_of([new], []), source(*old), GateConfig(**{"mode": "plain", **plan}))


def old(**more: Any) -> BenchmarkScores:
    return chosen(FINDS, checkpoint="old", **more)


def new(**more: Any) -> BenchmarkScores:
    return chosen(FREQUENT, checkpoint="new", began=9.0, **more)


def candidate(one: BenchmarkScores) -> CheckpointResults:
    return CheckpointResults(one.saved.checkpoint, "here", entries={one.saved.benchmark: one})


def test_a_collapse_of_macro_f1_fails_the_gate_though_accuracy_rises() -> None:
    [line] = gate(new(), old()).lines
    assert (line.metric, line.kind, round(line.comparison.new or 0, 4)) == ("f1", "worse", 0.4737)
    assert line.against is not None
    assert line.as_measured.baseline == pytest.approx(0.7264, abs=1e-4)
    by_accuracy = gate(new(), old(), metrics=("acc",)).lines[0]
    assert by_accuracy.kind == "not worse"
    assert by_accuracy.comparison.new == pytest.approx(0.9)


def test_floors_and_the_largest_drop_go_by_the_metric_of_the_verdict() -> None:
    rules = BenchmarkRules(metrics=("f1",), max_drop=0.2, floors=(Floor("f1", ">=", 0.6),))
    [line] = gate(new(), old(), benchmarks={"rare": rules}).lines
    assert {reason.split()[0] for reason in line.fails} == {"worse", "floor", "dropped"}
    [line] = gate(new(), old(), benchmarks={"rare": replace(rules, metrics=("acc",))}).lines
    assert [reason.split()[0] for reason in line.fails] == ["floor"]


def test_an_accepted_drop_is_one_of_the_metric() -> None:
    [line] = gate(new(), old()).lines
    drop = drop_of(line, new().saved, None, because="agreed", by="Ann", on="2026-01-01", run="run-new")
    assert drop.to == pytest.approx(0.4737, abs=1e-4)
    assert gate(new(), old(), accepted=(drop,)).lines[0].kind == "accepted"


def test_the_best_of_several_is_the_best_by_the_metric() -> None:
    [line] = gate(chosen(FINDS, checkpoint="x", began=9.0), old(), chosen(FREQUENT, checkpoint="often")).lines
    assert line.against is not None
    assert (line.against.checkpoint, line.against.runs) == ("old", 2)
    assert line.kind in ("not worse", "inconclusive")


def test_the_same_checkpoint_with_the_same_answers_is_not_worse_without_a_test() -> None:
    [line] = gate(chosen(FINDS, checkpoint="old", run_id="again", began=9.0), old(), baseline="run").lines
    assert line.kind == "not worse"
    assert not missing(line.comparison.why, "same checkpoint", "every item")


@pytest.mark.parametrize(("mode", "code"), [("plain", 0), ("strict", 8)])
def test_items_that_lack_what_the_metric_is_made_of_are_not_compared_by_name(mode: str, code: int) -> None:
    found = gate(new(), old(facts=False), mode=mode)
    [line] = found.lines
    assert (found.exit_code, line.kind, line.comparison.difference) == (code, "not compared", None)
    assert line.comparison.why.startswith(f"{NOT_COMPARED}: f1: ")
    assert line.comparison.new == pytest.approx(0.4737, abs=1e-4)


def test_a_comparison_shows_the_metric_and_an_item_without_facts_leaves_it_untested() -> None:
    [line] = compare_pair(candidate(old()), candidate(new())).lines
    assert (line.metric, line.counts.paired) == ("f1", True)
    assert line.comparison.verdict is not None
    assert line.comparison.verdict == "worse"
    assert line.comparison.new == pytest.approx(0.4737, abs=1e-4)
    [line] = compare_pair(candidate(old(facts=False)), candidate(new())).lines
    assert line.comparison.verdict is not None
    assert (line.comparison.verdict, line.comparison.p) == ("inconclusive", None)
    assert line.comparison.why.startswith(NOT_COMPARED)


def test_totals_of_such_a_metric_are_shown_and_not_compared() -> None:
    bare = [replace(one, items=replace(one.items, examples=[])) for one in (old(), new())]
    bare = [BenchmarkScores(one.saved) for one in bare]
    [line] = compare_pair(*map(candidate, bare)).lines
    assert (line.metric, line.comparison.p, line.comparison.low) == ("f1", None, None)
    assert line.comparison.difference == pytest.approx(-0.2527, abs=1e-4)
    assert line.comparison.verdict is not None
    assert (line.comparison.verdict, NOT_COMPARED in line.comparison.why) == ("inconclusive", True)


def test_groups_are_compared_by_the_metric_too() -> None:
    halves: list[str | None] = ["even" if place % 2 else "odd" for place in range(N)]
    sides = [candidate(replace(one, items=replace(one.items, groups=halves))) for one in (old(), new())]
    found = compare_pair(*map(split_by_group, sides))
    assert [(line.benchmark, line.metric) for line in found.lines] == [
        ("rare/odd", "f1"),
        ("rare/even", "f1"),
    ]
    assert found.lines[0].comparison.difference != found.lines[1].comparison.difference


def test_an_aggregation_of_a_project_s_own_is_tested_in_its_direction() -> None:
    quick, slow = [float(place % 10) for place in range(200)], [float(place % 10) * 2 for place in range(200)]
    found = compare(waited(slow, checkpoint="new"), [waited(quick)])
    assert (found.as_measured.baseline, found.comparison.new, found.comparison.unit) == (9.0, 18.0, "s")
    assert not found.comparison.higher_is_better
    [line] = gate(waited(slow, checkpoint="new", began=9.0), waited(quick)).lines
    assert (line.kind, line.metric) == ("worse", "slow")
    [line] = gate(waited(quick, checkpoint="new", began=9.0), waited(slow)).lines
    assert line.kind == "better"


def test_a_composite_of_such_a_metric_is_not_summed_item_by_item() -> None:
    composite = parse_composite("mix", {"rare:f1": 0.5, "other:acc": 0.5}, "here")
    entries = [{"rare": one, "other": entry(right(200, 400), benchmark="other")} for one in (old(), new())]
    sides = [CheckpointResults(name, name, entries=own) for name, own in zip("ab", entries, strict=True)]
    [line] = compare_pair(*sides, composites=[composite]).composites
    assert not line.counts.paired
    assert line.comparison.difference == pytest.approx(-0.2527 / 2, abs=1e-4)
    plain = [composite.plain()]
    before, after = (
        [replace(one, saved=replace(one.saved, composites=plain, checkpoint=name)) for one in own.values()]
        for name, own in zip(("old", "new"), entries, strict=True)
    )
    after = [replace(one, saved=replace(one.saved, run_id="now", began=9.0)) for one in after]
    lines = decide(cases_of(after, []), source(*before), GateConfig(mode="plain", metrics=("mix",))).lines
    assert [line.kind for line in lines if line.benchmark == "mix"] == ["not compared"]


def test_all_items_together_leave_it_out() -> None:
    others = [entry(right(200, 400), benchmark=name, checkpoint="old") for name in ("a", "b")]
    mine = [entry(right(150, 400), benchmark=name, checkpoint="new", began=9.0) for name in ("a", "b")]
    found = decide(cases_of([*mine, new()], []), source(*others, old()), GateConfig(mode="plain"))
    assert [(line.benchmark, line.comparison.n) for line in found.pooled] == [("2 benchmarks", 800)]


def test_a_standing_goes_by_the_metric() -> None:
    found = standings_of([old(), new()])
    assert [(one.metric, one.checkpoint, one.told) for one in found] == [("f1", "old", True)]


def test_a_plan_has_the_error_of_the_metric_and_not_that_of_accuracy() -> None:
    known = source(old(), new())
    [row] = make_plan(planned_benchmarks(known, known, {}, GateConfig()), known, known, GateConfig()).rows
    assert (row.metric, row.design.flips) == ("f1", None)
    two = compare(new(), [old()]).comparison.stderr
    assert row.design.error == pytest.approx(two)
    alone = source(old())
    [row] = make_plan(planned_benchmarks(alone, alone, {}, GateConfig()), alone, alone, GateConfig()).rows
    assert row.design.error == pytest.approx(old().saved.metrics["f1"].stderr)


def test_a_sequential_gate_asks_it_to_the_end() -> None:
    items = old().items
    nodes = [f"t.py::test_rare[{example}]" for example in items.examples]
    _, schedule = draw_schedule(nodes, items.examples, items.rows, items.clusters, seed=0)
    saved = replace(new().saved, items_sha256="")
    analyses = interim_analyses(schedule, saved, source(old()), GateConfig(mode="plain"), 1)
    assert analyses is not None
    answers = dict(zip(items.examples, zip(RIGHT, FREQUENT, strict=True), strict=True))
    records = {
        item: Record(
            item=item,
            benchmark="rare",
            example=example,
            checkpoint="new",
            status="scored",
            scores={"acc": float(len(set(answers[example])) == 1)},
            row=row,
            facts={"right": [answers[example][0]], "chosen": [answers[example][1]]},
        )
        for item, example, row in zip(schedule.items, schedule.examples, schedule.rows, strict=True)
    }
    early = dict(list(records.items())[: schedule.analyses[-2]])
    assert analyses.advance(early) is None
    found = analyses.advance(records)
    assert found is not None
    assert found.stop is not None
    assert (found.stop.items, found.stop.kind) == (N, "worse")
    assert found.judged.comparison.new == pytest.approx(0.4737, abs=1e-4)


def test_kept_items_have_the_facts() -> None:
    assert items_from_json(json.loads(json.dumps(items_json(old().items)))) == old().items


def test_code_that_a_file_of_results_names_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(file: Path) -> Any:
        return aggregation_of({"x": {"by": "evil", "of": "acc", "at": ["evil", str(file), "value"]}}, "x")

    def written(folder: Path) -> Path:
        folder.mkdir(parents=True)
        file = folder / "evil.py"
        ran = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        file.write_text(f"{ran}def value(values, clusters): return 0.5\n")
        return file

    project, run = tmp_path / "project", tmp_path / "project/results/run"
    outside, inside = written(tmp_path / "elsewhere"), written(run)
    (run / "summary.json").write_text("{}")
    monkeypatch.chdir(project)
    for file in (outside, inside, project / "../elsewhere/evil.py"):
        with pytest.raises(BenchmarkError, match=r"evil\.py"):
            draws_of(at(file), 10)
    assert not (tmp_path / "ran").exists()
    draws_of(at(written(project / "own")), 10)
    assert (tmp_path / "ran").exists()
    sys.modules.pop("touchstone_aggregation_evil", None)


def test_a_package_that_lies_elsewhere_has_its_own_functions_still() -> None:
    plain = {**new().saved.aggregate["f1"]}
    module, _, name = plain["at"]
    moved = aggregation_of({"f1": {**plain, "at": [module, "/gone/macro_f1.py", name]}}, "f1")
    assert draws_of(moved, 10).statistic.__name__ == "macro_f1_of_draws"
    assert draws_of(LARGEST, 10).tosses == 1_999


def test_a_file_of_lm_evaluation_harness_tells_which_metrics_are_no_means(tmp_path: Path) -> None:
    sides = []
    for name, f1 in (("a", 0.7), ("b", 0.4)):
        path = tmp_path / f"results_{name}.json"
        config = {
            "metric_list": [
                {"metric": "acc", "aggregation": "mean"},
                {"metric": "f1", "aggregation": "def macro_f1_score(items):\n    return 0\n"},
            ]
        }
        values = {"acc,none": 0.5, "acc_stderr,none": 0.05, "f1,none": f1, "f1_stderr,none": "N/A"}
        path.write_text(
            json.dumps(
                {
                    "results": {"kobest_boolq": {"alias": "kobest_boolq", **values}},
                    "configs": {"kobest_boolq": config},
                    "n-samples": {"kobest_boolq": {"original": 100, "effective": 100}},
                    "model_name": name,
                }
            )
        )
        sides.append(read_lm_eval(path, {}))
    [line] = compare_pair(*sides, metric="f1").lines
    assert (line.metric, line.comparison.p) == ("f1", None)
    assert line.comparison.verdict is not None
    assert "macro_f1_score" in line.comparison.why
