"""Two candidates are compared on the results that both have, item by item where possible, and judged together."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import NO_ITEMS, CheckpointResults
from pytest_touchstone.compare.formats.lm_eval import read_lm_eval
from pytest_touchstone.compare.pair import PairComparison, _canonical_name, compare_pair, split_by_group
from pytest_touchstone.core.aggregation import mean
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.comparison import pair_facts
from pytest_touchstone.statistics.verdicts import P_DECIDES
from tests.support.compared import Scores, printed, ran
from tests.support.entries import right
from tests.support.lines import missing
from tests.support.rows import write_jsonl

MIRROR = {"better": "worse", "worse": "better"}


def kinds(pair: PairComparison) -> dict[str, str]:
    return {name: line.comparison.verdict for name, line in pair.judged.items() if line.comparison.verdict}


def test_items_that_both_have_are_compared_in_pairs_with_their_flips() -> None:
    pair = compare_pair(ran("a", {"b": right(30, 100)}), ran("b", {"b": right(60, 100)}))
    (line,) = pair.lines
    assert line.counts.paired
    assert line.flips is not None
    assert (len(line.flips.gained), len(line.flips.lost)) == (30, 0)
    assert line.flips.gained[0] == "b/0030"
    assert line.comparison.method.startswith("McNemar")
    assert (line.comparison.difference, line.percent) == pytest.approx((0.3, 100.0))
    assert kinds(pair) == {"b": "better"}


def test_only_common_items_with_the_same_row_are_compared_and_the_note_says_so() -> None:
    a = ran("a", {"b": right(8, 10)}, rows=[f"r{n}" for n in range(10)])
    b = ran("b", {"b": right(8, 9)}, rows=["r0", "r1", "r2", "other", *(f"r{n}" for n in range(4, 9))])
    pair = compare_pair(a, b)
    assert pair.lines[0].comparison.n == 8
    assert not missing(" ".join(comparison.notes(pair)), "b: 8 of 10 items", "9 of B")


def test_scores_too_large_for_a_mean_leave_one_benchmark_without_a_verdict_and_no_other() -> None:
    """A metric that is undefined is not judged by another one in its place."""
    huge, fine = [1e155, 1e308, 1.0], right(30, 100)
    before, after = (
        ran(name, {"h": {"seconds": huge, "other": right(count, 3)}, "b": fine})
        for name, count in (("a", 1), ("b", 3))
    )
    for side in (before, after):
        one = side.entries["h"]
        undefined = replace(one.saved.metrics["seconds"], value=None, why="too large for a mean")
        metrics = {**one.saved.metrics, "seconds": undefined}
        side.entries["h"] = replace(one, saved=replace(one.saved, metrics=metrics))
    pair = compare_pair(before, after)
    assert kinds(pair)["h"] == "inconclusive"
    assert "seconds is undefined, too large" in pair.judged["h"].comparison.why
    assert pair.judged["b"].comparison.p == 1.0


def test_a_line_says_that_p_decides_where_the_interval_disagrees() -> None:
    errors = [float(place < 16) for place in range(40)], [float(place < 12) for place in range(40)]
    told = [
        compare_pair(ran("a", {"b": one}), ran("b", {"b": other}))
        for one, other in (errors, (errors[0], errors[0]))
    ]
    assert [P_DECIDES in comparison.notes(pair) for pair in told] == [True, False]


def test_results_on_other_items_are_compared_by_their_totals() -> None:
    a, b = (
        ran("a", {"b": right(8, 10)}),
        ran("b", {"b": right(5, 10)}, examples=[f"x/{n}" for n in range(10)]),
    )
    pair = compare_pair(a, b)
    assert not pair.lines[0].counts.paired
    assert pair.lines[0].comparison.method.startswith("score test")
    assert not missing(" ".join(comparison.notes(pair)), "b: 0 of 10 items", "10 of B", "as runs")


def test_items_in_clusters_are_compared_by_cluster() -> None:
    clusters = [f"t{n // 3}" for n in range(60)]
    pair = compare_pair(
        ran("a", {"b": right(30, 60)}, clusters=clusters), ran("b", {"b": right(42, 60)}, clusters=clusters)
    )
    assert "20 clusters" in pair.lines[0].comparison.method


def test_a_published_total_against_a_run_is_unpaired_and_said_to_be() -> None:
    pair = compare_pair(printed("paper", {"b": (0.5, None, 100)}), ran("mine", {"b": right(60, 100)}))
    assert not pair.lines[0].counts.paired
    notes = comparison.notes(pair)
    assert any(note.startswith("A was published elsewhere") for note in notes)
    assert any(note.startswith("only totals are known") and note.endswith(": b") for note in notes)


def test_without_sizes_nothing_is_judged_but_the_difference_is_shown() -> None:
    pair = compare_pair(printed("p", {"b": (0.5, None, 0)}), printed("q", {"b": (0.9, None, 0)}))
    line = pair.lines[0]
    assert line.comparison.difference == pytest.approx(0.4)
    assert kinds(pair) == {"b": "inconclusive"}
    assert line.comparison.verdict is not None
    assert "--items b=N" in line.comparison.why


def test_all_benchmarks_of_a_pair_are_corrected_together() -> None:
    # 9 gained and 1 lost: p = 0.021 alone, 0.064 among three.
    a = {f"b{n}": [0.0] * 9 + [1.0] + [0.0] * 90 for n in range(3)}
    b = {f"b{n}": [1.0] * 9 + [0.0] + [0.0] * 90 for n in range(3)}
    one = compare_pair(ran("a", {"b0": a["b0"]}), ran("b", {"b0": b["b0"]}))
    three = compare_pair(ran("a", a), ran("b", b))
    assert kinds(one) == {"b0": "better"}
    assert set(kinds(three).values()) == {"not worse"}
    assert three.lines[0].comparison.family == 3


def test_a_metric_beside_the_primary_one_is_shown_without_a_verdict_and_counts_nowhere() -> None:
    scores = {"real@1": right(3, 40), "real@5": right(9, 40), "reachable": right(20, 40)}
    pair = compare_pair(ran("a", {"real_coref": scores}), ran("b", {"real_coref": scores}))
    assert [(line.metric, line.primary) for line in pair.lines] == [("real@1", True), ("real@5", False)]
    assert [line.comparison.verdict is None for line in pair.lines] == [False, True]
    every = compare_pair(ran("a", {"real_coref": scores}), ran("b", {"real_coref": scores}), every=True)
    assert [line.metric for line in every.lines] == ["real@1", "real@5", "reachable"]


def test_another_metric_is_judged_where_a_benchmark_has_it() -> None:
    both: dict[str, Scores] = {"x": {"acc": right(1, 9), "acc_norm": right(2, 9)}, "y": right(3, 9)}
    pair = compare_pair(ran("a", both), ran("b", both), metric="acc_norm")
    assert {name: line.metric for name, line in pair.judged.items()} == {"x": "acc_norm", "y": "acc"}
    with pytest.raises(DataError, match=r"'f1' .*acc, acc_norm"):
        compare_pair(ran("a", both), ran("b", both), metric="f1")


def test_a_perplexity_is_compared_by_the_log_probabilities_of_its_items() -> None:
    scores = {"logprob": [-1.0, -2.0, -3.0, -2.5]}
    how = {"perplexity": {"by": "perplexity", "of": "logprob"}}
    better = {"logprob": [-0.5, -1.0, -2.0, -1.5]}
    a = ran("a", {"lm": scores}, aggregate=how)
    b = ran("b", {"lm": better}, aggregate=how)
    entries = (
        replace(one.entries["lm"], saved=replace(one.entries["lm"].saved, primary="perplexity"))
        for one in (a, b)
    )
    pair = compare_pair(*(replace(one, entries={"lm": e}) for one, e in zip((a, b), entries, strict=True)))
    (line,) = pair.lines
    assert (line.metric, line.percent) == ("logprob", None)
    assert (comparison.line_cells(line).metric, pair_facts(pair)["benchmarks"][0]["label"]) == (
        "perplexity (by log-probability)",
    ) * 2
    assert line.comparison.difference == pytest.approx(0.875)


def test_a_result_that_is_not_valid_decides_nothing() -> None:
    a, b = ran("a", {"b": right(10, 100)}), ran("b", {"b": right(90, 100)}, invalid="half was cut off")
    pair = compare_pair(a, b)
    assert kinds(pair) == {"b": "inconclusive"}
    assert not missing(" ".join(comparison.notes(pair)), "b of B", "NOT VALID: half was cut off")


def test_a_result_that_is_not_valid_does_not_count_in_the_correction_of_the_others() -> None:
    a, b = {"b": right(40, 100)}, {"b": right(60, 100)}
    alone = compare_pair(ran("a", a), ran("b", b)).judged["b"].comparison
    pair = compare_pair(ran("a", a | {"c": right(10, 100)}), ran("b", b | {"c": right(30, 100)}))
    assert pair.judged["b"].comparison.p_adjusted != alone.p_adjusted
    faulty = ran("b", b | {"c": right(30, 100)})
    entry = faulty.entries["c"]
    faulty.entries["c"] = replace(entry, saved=replace(entry.saved, faults=1))
    pair = compare_pair(ran("a", a | {"c": right(10, 100)}), faulty)
    assert pair.judged["b"].comparison == alone
    assert pair.judged["c"].comparison.verdict == "inconclusive"
    assert not missing(pair.judged["c"].comparison.why, "not valid", "1 of 100 items")


def test_what_was_asked_otherwise_is_named_and_equal_scores_are_then_no_proof() -> None:
    a, b = ran("a", {"b": right(5, 9)}), ran("a", {"b": right(5, 9)}, conditions={"shots": 5, "seed": 7})
    notes = comparison.notes(compare_pair(a, b))
    assert not missing(" ".join(notes), "shots 0 and 5: b", "seed 1234 and 7: b")
    assert kinds(compare_pair(a, b)) == {"b": "inconclusive"}
    assert kinds(compare_pair(a, a)) == {"b": "not worse"}


@pytest.mark.parametrize("condition", [{"base_model": "x"}, {"device_kind": "cuda"}, {"batch": 3}])
def test_what_changes_neither_answers_nor_items_is_no_other_way_of_asking(condition: dict[str, Any]) -> None:
    pair = compare_pair(ran("a", {"b": right(5, 9)}), ran("a", {"b": right(5, 9)}, conditions=condition))
    assert not [note for note in comparison.notes(pair) if "asked alike" in note]
    assert pair.judged["b"].identical


def test_a_limit_is_told_by_the_items_where_these_are_known() -> None:
    a, b = ran("a", {"b": right(5, 9)}), ran("b", {"b": right(5, 6)}, conditions={"limit": 6})
    (note,) = comparison.notes(compare_pair(a, b))
    assert not missing(note, "b: 6 of 9 items", "6 of B")
    totals = CheckpointResults(name="b", origin="run", entries={"b": replace(b.entries["b"], items=NO_ITEMS)})
    assert "limit none and 6: b" in " ".join(comparison.notes(compare_pair(a, totals)))


def test_a_setting_that_an_earlier_release_did_not_know_is_held_against_its_default() -> None:
    plain, other = ran("a", {"b": right(5, 9)}), {"grader": "reference"}
    pair = compare_pair(plain, ran("b", {"b": right(5, 9)}, conditions=other))
    assert "grader exact and reference: b" in " ".join(comparison.notes(pair))


def test_versions_of_different_programs_are_not_held_against_each_other() -> None:
    paper = printed("paper", {"b": (0.5, None, 100)})
    saved = replace(paper.entries["b"].saved, conditions={"version": 3.0, "shots": 5})
    paper = replace(paper, entries={"b": replace(paper.entries["b"], saved=saved)})
    notes = comparison.notes(compare_pair(paper, ran("mine", {"b": right(60, 100)})))
    (note,) = [note for note in notes if "asked alike" in note]
    assert note.endswith(", shots 5 and 0: b")


def test_benchmarks_that_only_one_has_are_named_and_left_out() -> None:
    pair = compare_pair(
        ran("a", {"x": right(1, 5), "y": right(1, 5)}), ran("b", {"y": [1.0] * 5, "z": [1.0]})
    )
    assert list(pair.judged) == ["y"]
    assert [note.partition(":")[0] for note in comparison.notes(pair)[-2:]] == [
        "only A has x",
        "only B has z",
    ]


def test_nothing_in_common_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(DataError, match=r"^a and b .*x; .*y$"):
        compare_pair(ran("a", {"x": [1.0]}), ran("b", {"y": [1.0]}))


def test_the_composite_is_compared_from_items_where_both_have_them_and_else_from_its_parts() -> None:
    def study(name: str, right_ones: int) -> CheckpointResults:
        coref = {"real@1": right(right_ones, 60), "real@5": right(right_ones + 10, 60)}
        return ran(name, {"real_coref": coref, "ko_lambada": {"lambada@1": right(right_ones, 60)}})

    pair = compare_pair(study("a", 20), study("b", 40))
    (score,) = pair.composites
    assert score.counts.paired
    assert score.benchmark == "score"
    assert score.comparison.difference == pytest.approx(1 / 3)
    assert score.comparison.verdict is not None
    assert score.comparison.verdict == "better"
    assert score.comparison.family == 1
    facts = pair_facts(compare_pair(study("a", 20), study("b", 21)))["composites"][0]
    assert (facts["n"], facts["items_to_tell"], facts["verdict"]) == (None, None, "inconclusive")
    bare = replace(
        study("b", 40),
        entries={name: replace(entry, items=NO_ITEMS) for name, entry in study("b", 40).entries.items()},
    )
    (score,) = compare_pair(study("a", 20), bare).composites
    assert not score.counts.paired
    assert score.comparison.method == "MOVER from the parts' limits"
    assert score.comparison.difference == pytest.approx(1 / 3)


def test_the_mean_improvement_weighs_all_benchmarks_alike() -> None:
    a = ran("a", {"x": right(50, 100), "y": right(0, 10), "z": right(5, 10)})
    b = ran("b", {"x": right(60, 100), "y": right(3, 10), "z": right(5, 10)})
    mean = compare_pair(a, b).mean
    assert mean is not None
    assert mean.comparison.difference == pytest.approx((0.1 + 0.3 + 0.0) / 3)
    assert (mean.percent, mean.relative) == pytest.approx(((20 + 0) / 2, 2))
    assert mean.comparison.low is not None
    unknown = compare_pair(
        printed("p", {"x": (0.5, None, 0), "y": (0.1, 0.01, 9)}),
        printed("q", {"x": (0.6, None, 0), "y": (0.1, 0.01, 9)}),
    ).mean
    assert unknown is not None
    assert not missing(comparison.mean_text(unknown), "+5.00 points", "no interval", "+10.0 %")
    assert compare_pair(ran("a", {"x": [1.0]}), ran("b", {"x": [1.0]})).mean is None


def test_results_that_are_not_valid_are_left_out_of_the_mean_and_of_all_items_together() -> None:
    a = ran("a", {"x": right(50, 100), "y": right(60, 100), "z": right(90, 100)})
    b = ran("b", {"x": right(60, 100), "y": right(70, 100), "z": right(1, 100)})
    entry = b.entries["z"]
    wrong = replace(entry, saved=replace(entry.saved, invalid="8 of 10 outputs ended at the limit"))
    pair = compare_pair(a, replace(b, entries={**b.entries, "z": wrong}))
    assert pair.mean is not None
    assert pair.pooled is not None
    assert pair.mean.benchmarks == 2
    assert pair.mean.comparison.difference == pytest.approx(0.1)
    assert pair.pooled.comparison.n == 200
    assert pair.pooled.comparison.difference == pytest.approx(0.1)
    lines = dict(comparison.findings(pair))
    assert not missing(lines["mean"], "2 benchmarks", "without z")
    assert not missing(lines["pooled"], "200 items", "2 benchmarks", "without z")


def test_groups_can_be_compared_as_benchmarks_of_their_own() -> None:
    def subjects(name: str, scores: list[float]) -> CheckpointResults:
        one = ran(name, {"mmlu": scores})
        entry = one.entries["mmlu"]
        items = replace(entry.items, groups=[*["algebra"] * 30, *["physics"] * 30])
        return replace(one, entries={"mmlu": replace(entry, items=items)})

    a, b = subjects("a", right(10, 60)), subjects("b", right(40, 60))
    pair = compare_pair(split_by_group(a), split_by_group(b))
    assert list(pair.judged) == ["mmlu/algebra", "mmlu/physics"]
    assert [line.comparison.n for line in pair.lines] == [30, 30]
    assert [round(line.comparison.difference or 0, 4) for line in pair.lines] == [0.6667, 0.3333]


def of_subjects(name: str, subjects: dict[str, list[float]], benchmark: str = "mmlu") -> CheckpointResults:
    one = ran(name, {benchmark: [score for scores in subjects.values() for score in scores]})
    entry = one.entries[benchmark]
    groups: list[str | None] = [subject for subject, scores in subjects.items() for _ in scores]
    items = replace(entry.items, groups=groups)
    return replace(one, entries={benchmark: replace(entry, items=items)})


def test_each_group_has_its_own_number_of_items() -> None:
    one = of_subjects("a", {"algebra": right(10, 20), "physics": right(5, 40)})
    entry = one.entries["mmlu"]
    marked = replace(entry, saved=replace(entry.saved, of=14042, mark="60 of 14,042 items"))
    entries = split_by_group(replace(one, entries={"mmlu": marked})).entries
    assert [(one.saved.scored, one.saved.of, one.saved.mark) for one in entries.values()] == [
        (20, 0, "part of the items"),
        (40, 0, "part of the items"),
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_subjects_of_a_run_pair_with_the_tasks_of_a_file(turned: bool) -> None:
    run = of_subjects("run", {"virology": right(30, 60), "marketing": right(20, 40)})
    file = printed("file", {"mmlu_virology": (0.6, None, 166), "mmlu_marketing": (0.5, None, 234)})
    pair = compare_pair(run, file) if turned else compare_pair(file, run)
    assert {name: line.comparison.n for name, line in pair.judged.items()} == {
        "mmlu_virology": 60,
        "mmlu_marketing": 40,
    }
    assert pair.only_in(pair.baseline, pair.new) == pair.only_in(pair.new, pair.baseline) == []


@pytest.mark.parametrize("task", ["minerva_math_counting_and_prob", "math_5000_Counting_&_Probability"])
def test_subjects_of_math_pair_by_every_name_that_they_have(task: str) -> None:
    run = of_subjects("run", {"Counting_&_Probability": right(30, 60)}, "math_5000")
    assert list(compare_pair(printed("file", {task: (0.6, None, 474)}), run).judged) == [task]
    ours = printed("ours", {"math_5000_Counting_&_Probability": (0.5, None, 474)})
    assert list(compare_pair(printed("file", {task: (0.6, None, 474)}), ours).judged) == [task]


def test_what_another_file_calls_exact_match_is_the_score_that_ours_has_for_it() -> None:
    task = "hendrycks_math_algebra"
    run = of_subjects("run", {"Algebra": right(30, 60)}, "math_5000")
    entry = run.entries["math_5000"]
    saved = replace(
        entry.saved,
        primary="hendrycks_exact",
        metrics={"hendrycks_exact": replace(entry.saved.metrics["acc"], name="hendrycks_exact")},
    )
    items = replace(entry.items, scores={"hendrycks_exact": entry.items.scores["acc"]})
    run = replace(run, entries={"math_5000": replace(entry, saved=saved, items=items)})
    pair = compare_pair(printed("file", {task: (0.6, None, 1187)}, metric="exact_match"), run)
    assert pair.judged[task].metric == "hendrycks_exact"


def test_differences_of_values_above_one_are_told_in_their_own_unit() -> None:
    pair = compare_pair(ran("a", {"b": [20.0, 30.0, 40.0, 50.0]}), ran("b", {"b": [21.0, 31.0, 41.5, 52.0]}))
    (line,) = pair.lines
    assert comparison.line_cells(line).points == "+1.3750 (+3.9 %)"
    assert line.comparison.verdict is not None
    assert line.comparison.why.startswith("+1.3750 [")
    assert "point" not in line.comparison.why


# Whatever the scores are

BITS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)
MANY = st.lists(BITS, min_size=1, max_size=4)


def sides(benchmarks: list[list[tuple[bool, bool]]]) -> tuple[CheckpointResults, CheckpointResults]:
    def side(name: str, place: int) -> CheckpointResults:
        return ran(
            name, {f"b{n}": [float(pair[place]) for pair in items] for n, items in enumerate(benchmarks)}
        )

    return side("a", 0), side("b", 1)


@settings(max_examples=40, deadline=None)
@given(MANY)
def test_exchanging_the_candidates_mirrors_the_comparison(benchmarks: list[list[tuple[bool, bool]]]) -> None:
    a, b = sides(benchmarks)
    one, other = compare_pair(a, b), compare_pair(b, a)
    for line, mirrored in zip(one.lines, other.lines, strict=True):
        assert line.flips is not None
        assert mirrored.flips is not None
        assert line.flips == (mirrored.flips.lost, mirrored.flips.gained)
        assert line.comparison.difference == -(mirrored.comparison.difference or 0)
        assert line.comparison.p == pytest.approx(mirrored.comparison.p)
        assert line.comparison.verdict is not None
        assert mirrored.comparison.verdict is not None
        expected = MIRROR.get(line.comparison.verdict)
        assert expected is None or mirrored.comparison.verdict == expected


@settings(max_examples=40, deadline=None)
@given(MANY, st.integers())
def test_the_order_of_the_items_and_benchmarks_does_not_matter(
    benchmarks: list[list[tuple[bool, bool]]], seed: int
) -> None:
    a, b = sides(benchmarks)
    draw = random.Random(seed)

    def shuffled(one: CheckpointResults) -> CheckpointResults:
        entries = {}
        for name, entry in draw.sample(list(one.entries.items()), len(one.entries)):
            items = entry.items
            order = draw.sample(range(len(items.examples)), len(items.examples))
            moved = replace(
                items,
                examples=[items.examples[n] for n in order],
                rows=[items.rows[n] for n in order],
                scores={key: [values[n] for n in order] for key, values in items.scores.items()},
            )
            entries[name] = replace(entry, items=moved)
        return replace(one, entries=entries)

    one, other = pair_facts(compare_pair(a, b)), pair_facts(compare_pair(shuffled(a), shuffled(b)))
    by_name = {line["benchmark"]: line for line in other["benchmarks"]}
    assert [by_name[line["benchmark"]] for line in one["benchmarks"]] == one["benchmarks"]
    assert one["composites"] == other["composites"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=40), min_size=1, max_size=4), st.booleans())
def test_identical_runs_are_identical_and_never_worse(scores: list[list[float]], same_name: bool) -> None:
    made = {f"b{n}": values for n, values in enumerate(scores)}
    pair = compare_pair(ran("a", made), ran("a" if same_name else "b", made))
    for line in pair.lines:
        assert line.is_unchanged
        assert line.comparison.difference == 0
        assert line.comparison.verdict is not None
        assert line.comparison.verdict in (("not worse",) if same_name else ("not worse", "inconclusive"))
        assert comparison.line_cells(line).flips == "identical"


def test_a_metric_with_a_unit_is_compared_by_its_own_margin_and_told_in_it() -> None:
    one, other = (
        ran(name, {"b": {"acc": right(10, 20), "bits_per_byte": values * 10}})
        for name, values in (("a", [1.0, 1.1]), ("b", [1.004, 1.106]))
    )
    (line,) = (pair := compare_pair(one, other, metric="bits_per_byte")).lines
    assert line.comparison.verdict is not None
    assert (line.comparison.verdict, line.comparison.margin) == ("not worse", 0.01)
    assert not missing(line.comparison.why, "at most 0.01 bits")
    assert comparison.line_cells(line).points == "+0.0050 bits (+0.5 %)"
    assert pair_facts(pair)["benchmarks"][0]["unit"] == "bits"
    (wide,) = compare_pair(one, other, metric="bits_per_byte", margin=0.001).lines
    assert wide.comparison.verdict is not None
    assert wide.comparison.margin == 0.001


def test_a_unit_without_a_margin_has_no_verdict_but_its_difference() -> None:
    one, other = (
        ran(name, {"b": {"acc": right(10, 20), "log_odds": values * 10}})
        for name, values in (("a", [1.0, 1.1]), ("b", [1.2, 1.4]))
    )
    (line,) = compare_pair(one, other, metric="log_odds").lines
    assert line.comparison.verdict is None
    assert comparison.line_cells(line).points == "+0.2500 nats (+23.8 %)"


@pytest.mark.parametrize("theirs_first", [True, False])
def test_the_items_of_a_file_are_those_of_a_run_of_lm_evals_task(theirs_first: bool) -> None:
    ours = ran("ours", {"lm_eval:mc": {"acc": right(10, 20)}})
    (entry,) = ours.entries.values()
    examples = [name.removeprefix("lm_eval:") for name in entry.items.examples]
    saved = replace(entry.saved, benchmark="mc")
    entry = replace(entry, saved=saved, items=replace(entry.items, examples=examples))
    theirs = replace(ours, name="theirs", entries={"mc": entry})
    (entry,) = ours.entries.values()
    aggregate = {"acc": mean("acc", higher_is_better=False).plain()}
    ours.entries["lm_eval:mc"] = replace(entry, saved=replace(entry.saved, aggregate=aggregate))
    pair = compare_pair(*((theirs, ours) if theirs_first else (ours, theirs)))
    assert pair.judged["lm_eval:mc"].counts.each == (20, 20, 20)
    assert not pair.judged["lm_eval:mc"].comparison.higher_is_better


def test_raw_values_in_samples_of_lm_eval_are_facts_of_the_items(tmp_path: Path) -> None:
    content = {
        "results": {"roll": {"word_perplexity,none": 5.0}},
        "configs": {},
        "n-samples": {"roll": {"original": 2, "effective": 2}},
        "config": {"model": "hf", "model_dtype": "torch.float32"},
    }
    (tmp_path / "results_2026-01-02T03-04-05.6.json").write_text(json.dumps(content))
    rows = [
        {"doc_id": n, "filter": "none", "metrics": ["word_perplexity"], "word_perplexity": [-3.5 * n, 2]}
        for n in (1, 2)
    ]
    write_jsonl(tmp_path / "samples_roll_2026-01-02T03-04-05.6.jsonl", rows)
    entry = read_lm_eval(tmp_path / "results_2026-01-02T03-04-05.6.json", {}).entries["roll"]
    assert entry.items.scores["word_perplexity"] == [-3.5, -7.0]
    assert entry.items.facts == {"raw_word_perplexity": ["[-3.5, 2]", "[-7.0, 2]"]}
    assert entry.saved.conditions["dtype"] == "float32"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("lm_eval:arc_easy", "arc_easy"), ("lm_eval:mmlu_virology", "mmlu_virology"), ("lm_eval:a::b", "a::b")],
)
def test_a_task_is_the_one_of_its_name_in_their_files(ours: str, theirs: str) -> None:
    assert _canonical_name(ours) == _canonical_name(theirs)
