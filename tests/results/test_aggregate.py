"""Aggregation: every collected item is accounted for, and numbers depend on nothing but the scores."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.coverage import BenchmarkSize
from pytest_touchstone.core.errors import BenchmarkError, HarnessError
from pytest_touchstone.metrics import MACRO_F1
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.store_entry import DEFAULT_COMPOSITES, results_from_records
from pytest_touchstone.results.summary import (
    CollectedItem,
    Summary,
    count_items,
    replace_non_finite,
    summary_from_json,
    summary_json,
    whole_results,
)
from pytest_touchstone.statistics.intervals import mean_estimate
from tests.support.known import known
from tests.support.lines import naming, numbers
from tests.support.summaries import DECLARATIONS, SUBJECTS, collect, declaration, record, sample, score


def summarised(records: list[Record], items: list[CollectedItem], **declarations) -> Summary:
    return summarize(
        records,
        DECLARATIONS | declarations,
        items,
        run_id="r",
        directory="results/r",
        manifest={},
        checkpoints=[],
    )


def only(summary: Summary):
    [result] = whole_results(summary)
    return result


def test_samples_have_pass_at_k_only_where_all_items_are_right_or_wrong():
    items = collect(["winogrande"], ["c"], 3)
    shares = {"acc": 0.5, "avg@2": 0.5, "pass@2": 1.0}
    records = [replace(one, scores=shares) for one in score(items)]
    assert only(summarised(records, items)).metrics["pass@2"].value == 1.0
    records[0] = replace(records[0], scores={"acc": 0.4, "avg@2": 0.4})
    found = only(summarised(records, items)).metrics
    assert (list(found), found["avg@2"].n) == (["acc", "avg@2"], 3)


def test_an_item_without_a_record_is_lost_and_named():
    items = collect(["winogrande"], ["c"], 3)
    summary = summarised(score(items)[:2], items)
    assert (only(summary).scored, only(summary).lost) == (2, 1)
    [fault] = summary.faults
    assert fault["item"] == items[2].item
    assert fault["status"] == "lost"
    assert "no record" in fault["message"]


def test_the_last_record_of_an_item_counts():
    items = collect(["winogrande"], ["c"], 1)
    wrong, right = record(items[0], {"acc": 0.0}), record(items[0], {"acc": 1.0})
    assert only(summarised([wrong, right], items)).metrics["acc"].value == 1
    assert only(summarised([right, wrong], items)).metrics["acc"].value == 0
    failed = record(items[0], {}, status="error", message="broken")
    assert only(summarised([right, failed], items)).errors == 1


def test_what_was_scored_is_never_replaced_by_lost():
    items = collect(["winogrande"], ["c"], 1)
    lost = record(items[0], {}, status="lost")
    assert only(summarised([record(items[0], {"acc": 1.0}), lost], items)).scored == 1


def test_only_scored_items_enter_a_metric_and_n_says_how_many():
    items = collect(["winogrande"], ["c"], 4)
    records = [
        record(items[0], {"acc": 1.0}),
        record(items[1], {"acc": 0.0}, status="error"),
        record(items[2], {}, status="skipped"),
    ]
    metric = only(summarised(records, items)).metrics["acc"]
    assert (metric.value, metric.n) == (1, 1)


def test_a_result_is_not_valid_by_its_outputs_alone():
    items = collect(["winogrande"], ["c"], 2)
    records = [replace(record(item, {"acc": 1.0}), no_answer=1) for item in items]
    assert only(summarised(records, items)).invalid is None
    records = [replace(one, outputs=1) for one in records]
    assert naming("2 of 2 outputs").search(str(only(summarised(records, items)).invalid))


def test_a_score_that_only_some_items_have_is_averaged_over_those():
    items = collect(["winogrande"], ["c"], 3)
    records = [record(items[0], {"acc": 1.0, "extra": 0.5}), *(record(i, {"acc": 0.0}) for i in items[1:])]
    metrics = only(summarised(records, items)).metrics
    assert (metrics["acc"].n, metrics["extra"].n, metrics["extra"].value) == (3, 1, 0.5)


def test_the_primary_metric_is_there_and_undefined_when_nothing_was_scored():
    items = collect(["winogrande"], ["c"], 2)
    metric = only(summarised([], items)).metrics["acc"]
    assert (metric.value, metric.n) == (None, 0)
    assert metric.why


def test_the_primary_metric_stands_first():
    items = collect(["winogrande"], ["c"], 2)
    records = [record(item, {"aaa": 1.0, "acc": 1.0}) for item in items]
    assert list(only(summarised(records, items)).metrics) == ["acc", "aaa"]


def test_records_of_items_that_were_not_collected_are_counted_and_left_out():
    items = collect(["winogrande"], ["c"], 4)
    summary = summarised(score(items), items[:2])
    assert (only(summary).collected, summary.uncollected) == (2, 2)


def test_an_aggregation_adds_a_metric():
    items = collect(["lambada_openai"], ["c"], 3)
    records = [record(item, {"acc": 1.0, "logprob": -math.log(7)}) for item in items]
    metrics = only(summarised(records, items)).metrics
    assert metrics["perplexity"].value == pytest.approx(7)
    assert metrics["logprob"].value == pytest.approx(-math.log(7))


def test_an_interval_of_bits_is_not_below_zero():
    items = collect(["winogrande"], ["c"], 4)
    records = [
        record(one, {"acc": 0.0, "bits_per_byte": value, "plain": value})
        for one, value in zip(items, (0, 0, 0, 3.0), strict=True)
    ]
    metrics = only(summarised(records, items)).metrics
    assert known(metrics["plain"].low) < 0
    assert (metrics["bits_per_byte"].low, metrics["bits_per_byte"].high) == (0.0, metrics["plain"].high)


def test_an_aggregation_replaces_the_mean_of_the_same_name():
    items = collect(["winogrande"], ["c"], 3)
    declared = declaration("winogrande", "acc", aggregate={"acc": {"by": "perplexity", "of": "acc"}})
    records = [record(item, {"acc": -1.0}) for item in items]
    assert only(summarised(records, items, winogrande=declared)).metrics["acc"].value == pytest.approx(math.e)


def test_an_unknown_aggregation_is_refused_by_name():
    items = collect(["winogrande"], ["c"], 1)
    declared = declaration("winogrande", aggregate={"m": {"by": "median", "of": "acc"}})
    with pytest.raises(BenchmarkError, match="'median'; use mean, perplexity"):
        summarised(score(items), items, winogrande=declared)


def test_an_undeclared_benchmark_is_refused_by_name():
    item = CollectedItem("t.py::t[c-x/1]", "x", "c", "x/1", None)
    with pytest.raises(BenchmarkError, match=naming("benchmark 'x'")):
        summarised([], [item])


def test_a_grouped_benchmark_has_a_result_a_group_before_its_whole():
    items = collect(["mmlu_stem"], ["c"], 7)
    names = [result.name for result in summarised(score(items), items).results]
    assert names == [*(f"mmlu_stem/{subject}" for subject in SUBJECTS), "mmlu_stem"]


@pytest.mark.parametrize("ordered", [("2023-11", "2024-02", "2024-10"), ("9", "10", "100")])
def test_groups_that_are_months_or_numbers_are_in_their_order(ordered):
    items = [
        replace(item, group=ordered[(index + 2) % 3])
        for index, item in enumerate(collect(["mmlu_stem"], ["c"], 6))
    ]
    groups = [result.group for result in summarised(score(items), items).results]
    assert groups == [*ordered, None]


def test_micro_is_over_items_and_macro_over_groups():
    items = collect(["mmlu_stem"], ["c"], 4)  # two of the first group, one each of the others
    records = [record(item, {"acc": float(item.group == SUBJECTS[0])}) for item in items]
    metrics = only(summarised(records, items)).metrics
    assert metrics["acc"].value == pytest.approx(2 / 4)
    assert metrics["acc_macro"].value == pytest.approx(1 / 3)


def test_macro_is_undefined_when_a_group_has_no_scores():
    items = collect(["mmlu_stem"], ["c"], 3)
    metric = only(summarised(score(items)[:2], items)).metrics["acc_macro"]
    assert metric.value is None
    assert "group" in (metric.why or "")


def test_clusters_widen_the_interval_of_clustered_benchmarks_only():
    items = collect(["real_coref"], ["c"], 30)
    records = [
        record(item, {"real@1": float(index // 10 % 2)}, cluster=f"text{index // 10}")
        for index, item in enumerate(items)
    ]
    clustered = only(summarised(records, items)).metrics["real@1"]
    plain = replace(DECLARATIONS["real_coref"], clustered=False)
    alone = only(summarised(records, items, real_coref=plain)).metrics["real@1"]
    assert clustered.value == alone.value
    assert clustered.stderr > alone.stderr


def test_checkpoints_are_kept_apart():
    items = collect(["winogrande"], ["one", "two"], 2)
    records = [record(item, {"acc": float(item.checkpoint == "two")}) for item in items]
    values = {result.checkpoint: result.metrics["acc"].value for result in summarised(records, items).results}
    assert values == {"one": 0, "two": 1}


def test_a_composite_needs_all_its_parts():
    both = ["real_coref", "ko_lambada_wiki"]
    items = collect(both, ["c"])
    assert [one["name"] for one in summarised(score(items), items).composites] == ["score_wiki"]
    for benchmark in both:
        part = collect([benchmark], ["c"])
        assert summarised(score(part), part).composites == []


def test_a_composite_is_the_weighted_sum_of_the_metrics_shown():
    summary = sample(1, faults=False)
    [composite] = summary.composites
    found = {r.benchmark: r.metrics for r in whole_results(summary)}
    [definition] = [one for one in DEFAULT_COMPOSITES if one.name == composite["name"]]
    parts = [weight * known(found[benchmark][metric].value) for weight, benchmark, metric in definition.parts]
    assert composite["value"] == pytest.approx(math.fsum(parts))
    assert composite["low"] <= composite["value"] <= composite["high"]
    assert composite["stderr"] > 0


def test_parts_of_a_composite_over_the_same_items_are_not_taken_as_independent():
    items = collect(["real_coref", "ko_lambada_wiki"], ["c"], 40)
    draw = random.Random(1)
    hits = {item.item: float(draw.random() < 0.5) for item in items}
    records = [
        record(i, dict.fromkeys(("real@1", "real@5", "lambada@1"), hits[i.item]), cluster=i.example)
        for i in items
    ]
    [composite] = summarised(records, items).composites
    coref, lambada = (
        mean_estimate([hits[item.item] for item in items if item.benchmark == name]).stderr
        for name in ("real_coref", "ko_lambada_wiki")
    )
    # Two equal scores weigh 0.4 + 0.3: their errors add up, they do not average out.
    assert composite["stderr"] == pytest.approx(math.hypot(0.7 * known(coref), 0.3 * known(lambada)))


scores = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=25)


@given(values=scores, seed=st.integers(0, 2**16))
def test_metrics_do_not_depend_on_the_order_of_records_or_items(values, seed):
    items = collect(["mmlu_stem"], ["c"], len(values))
    records = [record(item, {"acc": value}) for item, value in zip(items, values, strict=True)]
    expected = summarised(records, items)
    draw = random.Random(seed)
    draw.shuffle(records)
    assert summarised(records, items).results == expected.results
    draw.shuffle(items)
    by_name = {result.name: result.metrics["acc"] for result in expected.results}
    assert {r.name: r.metrics["acc"] for r in summarised(records, items).results} == by_name


@given(values=scores)
def test_means_and_composites_lie_between_the_lowest_and_highest_score(values):
    items = collect(["real_coref", "ko_lambada_wiki"], ["c"], len(values))
    records = [
        record(item, dict.fromkeys(("real@1", "real@5", "lambada@1"), value), cluster="a")
        for item, value in zip(items, values * 2, strict=True)
    ]
    summary = summarised(records, items)
    found = [m.value for r in summary.results for m in r.metrics.values()]
    found += [composite["value"] for composite in summary.composites]
    assert all(min(values) - 1e-12 <= value <= max(values) + 1e-12 for value in found)


@given(hits=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_intervals_of_hits_and_their_composites_stay_within_0_and_1(hits):
    items = collect(["real_coref", "ko_lambada_wiki"], ["c"], len(hits))
    names = ("real@1", "real@5", "lambada@1")
    records = [
        record(item, dict(zip(names, map(float, hit), strict=True)), cluster=f"t{index // 2}")
        for index, (item, hit) in enumerate(zip(items, hits * 2, strict=True))
    ]
    [composite] = summarised(records, items).composites
    if composite["low"] is not None:
        assert -1e-9 <= composite["low"] <= composite["value"] <= composite["high"] <= 1 + 1e-9


@given(statuses=st.lists(st.sampled_from(STATUSES), min_size=1, max_size=30))
def test_the_counts_add_up_to_what_was_collected(statuses):
    items = collect(["mmlu_stem"], ["c"], len(statuses))
    records = [
        record(item, {"acc": 1.0} if status == "scored" else {}, status=status)
        for item, status in zip(items, statuses, strict=True)
    ]
    summary = summarised(records, items)
    for result in summary.results:
        parts = (result.scored, result.skipped, result.errors, result.timeouts, result.lost)
        assert sum(parts) == result.collected
    assert count_items(summary)["collected"] == len(statuses)
    assert len(summary.faults) == sum(status in ("error", "timeout", "lost") for status in statuses)


def test_the_json_form_reads_back_as_the_same_summary():
    summary = sample(2)
    text = json.dumps(summary_json(summary), allow_nan=False)
    assert summary_from_json(json.loads(text)) == summary


def test_the_json_form_has_no_nan():
    item = replace(sample(1), seconds=math.nan)
    assert summary_json(item)["seconds"] is None
    assert replace_non_finite({"a": [math.inf, (1.0, "x")]}) == {"a": [None, [1.0, "x"]]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "schema=None"),
        ({"schema": 99, "kind": "summary"}, "schema=99"),
        ({"schema": 1, "kind": "summary"}, "incomplete summary"),
        ({"schema": 1, "kind": "summary", "results": [{"name": "x"}]}, "incomplete summary"),
    ],
)
def test_anything_else_is_refused_with_a_reason(data, said):
    with pytest.raises(HarnessError, match=said):
        summary_from_json(data)


def test_importing_results_and_reports_loads_neither_torch_nor_scipy_nor_rich():
    modules = "results.aggregate, reports.files, reports.terminal, reports.progress"
    code = (
        f"import sys; {'; '.join(f'import pytest_touchstone.{m}' for m in modules.split(', '))}; "
        "print([m for m in ('torch', 'scipy', 'rich', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_result_over_fewer_items_than_there_are_says_so_and_so_do_its_groups_and_its_saved_form():
    items = collect(["mmlu_stem"], ["c"], 12)
    extents = {
        "": BenchmarkSize(of=56, rows=56, published=2386),
        **{group: BenchmarkSize(of=20 if index else 4, rows=20) for index, group in enumerate(SUBJECTS)},
    }
    declared = replace(DECLARATIONS["mmlu_stem"], extents=extents)
    summary = summarised(score(items), items, mmlu_stem=declared)
    marks = {result.name: (result.of, result.mark) for result in summary.results}
    of, mark = marks["mmlu_stem"]
    assert (of, numbers(mark)) == (56, [12, 56, 2386])
    assert marks[f"mmlu_stem/{SUBJECTS[0]}"] == (4, "")
    assert marks[f"mmlu_stem/{SUBJECTS[1]}"] == (20, "4 of 20 items")
    assert summary_from_json(json.loads(json.dumps(summary_json(summary)))) == summary
    [(saved, _)] = results_from_records(summary, score(items))
    assert (saved.of, saved.part, saved.mark) == (56, True, mark)


def test_a_composite_over_part_of_the_items_says_so():
    names = ["real_coref", "ko_lambada_wiki"]
    items = collect(names, ["c"], 6)
    extents = {"": BenchmarkSize(of=10, rows=10)}
    declared = {name: replace(DECLARATIONS[name], extents=extents) for name in names}
    [composite] = summarised(score(items), items, **declared).composites
    assert composite["mark"] == "12 of 20 items"
    assert {part["of"] for part in composite["parts"]} == {10}


def test_results_of_earlier_releases_have_no_mark():
    plain = summary_json(sample())
    for declared in plain["declarations"]:
        del declared["extents"], declared["own_rows"]
    for result in plain["results"]:
        for name in ("of", "published", "mark", "template"):
            del result[name]
    found = summary_from_json(json.loads(json.dumps(plain)))
    assert {(result.of, result.mark) for result in found.results} == {(0, "")}


@pytest.mark.parametrize(("chat", "said"), [(0, "plain"), (2, "chat"), (1, "mixed")])
def test_a_result_says_how_its_texts_were_asked_for(chat, said):
    items = collect(["winogrande"], ["c"], 2)
    records = [
        record(item, {"acc": 1.0}, outputs=1, chat=int(index < chat)) for index, item in enumerate(items)
    ]
    assert only(summarised(records, items)).template == said
    assert only(summarised(score(items), items)).template is None


def test_an_aggregation_gets_what_the_benchmark_told_beside_the_score():
    items = collect(["winogrande"], ["c"], 4)
    told = [{"right": [one], "chosen": [two]} for one, two in ((0, 0), (0, 1), (1, 1), (1, 1))]
    records = [record(item, {"acc": 1.0}, facts=one) for item, one in zip(items, told, strict=True)]
    declared = declaration("winogrande", aggregate={"f1": MACRO_F1.plain()})
    assert only(summarised(records, items, winogrande=declared)).metrics["f1"].value == pytest.approx(11 / 15)
    records[0] = record(items[0], {"acc": 1.0})
    without = only(summarised(records, items, winogrande=declared)).metrics["f1"]
    assert without.value is None
    assert naming("'right'").search(without.why)
