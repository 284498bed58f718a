"""Result files by task, and of lm-evaluation-harness, are read with errors and numbers of items."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.cli.baseline import save
from pytest_touchstone.compare.candidate import inferred_items
from pytest_touchstone.compare.formats.lm_eval import read_lm_eval
from pytest_touchstone.compare.formats.task_json import read_task_file
from pytest_touchstone.compare.formats.task_metrics import metric_name, metrics_of, primary_of
from pytest_touchstone.compare.load import read_file, saved_candidates, with_items
from pytest_touchstone.compare.pair import PairComparison, compare_pair
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.reports import comparison
from pytest_touchstone.results.store import ResultStore
from tests.conformance.kit import kits
from tests.support.compared import ran
from tests.support.lines import missing


def dumped(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def error(p: float, n: int) -> float:
    return math.sqrt(p * (1 - p) / (n - 1))


# By task


def test_a_file_by_task_gives_values_errors_and_sizes(tmp_path: Path) -> None:
    results = {
        "winogrande": {"acc": 0.55, "acc_stderr": 0.014, "samples": 1267},
        "drop": {"em": 0.1, "f1": 0.2, "f1_stderr": 0.01, "samples": 300, "not_valid": "cut off"},
    }
    path = dumped(tmp_path / "base_results.json", {"model": "base", "results": results})
    one = read_task_file(path, {})
    assert one.name == "base"
    winogrande, drop = one.entries["winogrande"].saved, one.entries["drop"].saved
    assert (winogrande.metrics["acc"].stderr, winogrande.scored) == (0.014, 1267)
    assert (drop.primary, drop.invalid) == ("f1", "cut off")


def test_a_file_without_a_name_has_that_of_its_file(tmp_path: Path) -> None:
    path = dumped(tmp_path / "tuned_results.json", {"results": {"drop": {"f1": 0.2}}})
    assert read_task_file(path, {}).name == "tuned"


def test_the_whole_of_other_tasks_is_left_out_and_named(tmp_path: Path) -> None:
    results = {
        "mmlu_stem": {"acc": 0.3, "samples": 40},
        "mmlu_college_physics": {"acc": 0.2, "samples": 20},
        "mmlu_machine_learning": {"acc": 0.4, "samples": 20},
        "mbpp": {"pass@1": 0.2, "samples": 10},
        "mbpp_sanitized": {"pass@1": 0.2, "samples": 10},
        "mbpp_docstring": {"pass@1": 0.2, "samples": 10},
    }
    one = read_task_file(dumped(tmp_path / "x.json", {"model": "m", "results": results}), {})
    assert list(one.entries) == [name for name in results if name != "mmlu_stem"]
    (note,) = one.notes
    assert not missing(note, "x.json", "mmlu_stem", "2 parts")


def test_whole_mmlu_and_a_group_of_it_are_left_out_where_all_subjects_are_there(tmp_path: Path) -> None:
    results = {
        "mmlu": {"acc": 0.3, "samples": 60},
        "mmlu_stem": {"acc": 0.3, "samples": 40},
        "mmlu_college_physics": {"acc": 0.2, "samples": 20},
        "mmlu_machine_learning": {"acc": 0.4, "samples": 20},
        "mmlu_virology": {"acc": 0.3, "samples": 20},
    }
    one = read_task_file(dumped(tmp_path / "x.json", {"model": "m", "results": results}), {})
    assert list(one.entries) == ["mmlu_college_physics", "mmlu_machine_learning", "mmlu_virology"]
    assert [note.split()[:2] for note in one.notes] == [["x.json:", "mmlu"], ["x.json:", "mmlu_stem"]]
    assert "3 parts" in one.notes[0]


@given(st.integers(2, 20_000), st.data())
def test_the_number_of_right_and_wrong_items_is_read_off_their_error(n: int, data: st.DataObject) -> None:
    share = data.draw(st.integers(1, n - 1)) / n
    short = float(f"{error(share, n):.5g}") == error(share, n)
    assert inferred_items(share, error(share, n)) == (None if short else n)


@pytest.mark.parametrize(
    ("value", "stderr"),
    [(0.5, None), (0.5, 0.0), (0.0, 0.0), (1.0, 0.0), (0.37, 0.0123), (0.5, 0.02), (0.5, 0.05), (7.5, 0.1)],
)
def test_an_error_that_fits_no_number_of_items_gives_none(value: float, stderr: float | None) -> None:
    assert inferred_items(value, stderr) is None


def test_a_twenty_item_subject_without_its_size_is_known_by_its_error(tmp_path: Path) -> None:
    results = {"mmlu_college_physics": {"acc": 0.35, "acc_stderr": error(0.35, 20)}}
    one = read_task_file(dumped(tmp_path / "x.json", {"model": "m", "results": results}), {})
    assert one.entries["mmlu_college_physics"].saved.scored == 20


@pytest.mark.parametrize("size", [-1, "20", 2.5, True])
def test_a_wrong_number_of_items_is_named(tmp_path: Path, size: object) -> None:
    path = dumped(tmp_path / "x.json", {"model": "m", "results": {"drop": {"f1": 0.2, "samples": size}}})
    with pytest.raises(DataError, match=r"x\.json, drop: .*number of items"):
        read_task_file(path, {})


# Metrics


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("acc", "acc"),
        ("acc,none", "acc"),
        ("acc_stderr,none", "acc_stderr"),
        ("exact_match,strict-match", "exact_match_strict"),
        ("exact_match_stderr,flexible-extract", "exact_match_flexible_stderr"),
        ("exact_match,flexible-extract_stderr", "exact_match_flexible_stderr"),
        ("math_verify,none_stderr", "math_verify_stderr"),
        ("pass@1,create_test", "pass@1_create_test"),
    ],
)
def test_keys_of_filters_become_our_names(key: str, name: str) -> None:
    assert metric_name(key) == name


SCORERS = {
    "arc_easy": ["acc", "acc_norm"],
    "arc_challenge": ["acc", "acc_norm"],
    "hellaswag": ["acc", "acc_norm"],
    "winogrande": ["acc"],
    "mmlu": ["acc", "acc_norm"],
    "mmlu_stem": ["acc", "acc_norm"],
    "lambada": ["acc", "perplexity", "perplexity_logprob"],
    "gsm8k": ["exact_match_strict", "exact_match_flexible", "exact_match"],
    "math": ["exact_match", "math_verify", "minerva_exact", "hendrycks_exact"],
    "drop": ["em", "f1"],
    "humaneval": ["pass@10", "pass@1"],
    "humaneval_plus": ["pass@10", "pass@1", "base_pass@1"],
    "mbpp_plus": ["pass@10", "pass@1", "base_pass@1"],
    "mbpp": ["pass@10", "pass@1"],
    "mbpp_sanitized": ["pass@10", "pass@1"],
    "mbpp_docstring": ["pass@10", "pass@1"],
    "codecontests": ["pass@10", "pass@1"],
    "apps_stdin": ["pass@10", "pass@1"],
    "livecodebench": ["pass@10", "pass@1"],
    "mmlu_continuation": ["acc", "acc_norm"],
    "mmlu_pro_letters": ["acc"],
    "mmlu_pro": ["exact_match"],
    "bbh": ["exact_match"],
    "bbh_zeroshot": ["exact_match_strict", "exact_match_flexible"],
    "ifeval": ["inst_level_strict_acc", "prompt_level_strict_acc", "prompt_level_loose_acc"],
    "ifbench": ["inst_level_loose_acc", "prompt_level_strict_acc", "prompt_level_loose_acc"],
    "piqa": ["acc", "acc_norm"],
    "openbookqa": ["acc", "acc_norm"],
    "boolq": ["acc"],
    "commonsense_qa": ["acc"],
    **{f"kobest_{task}": ["acc", "f1"] for task in ("boolq", "copa", "sentineg", "wic")},
    "kobest_hellaswag": ["acc", "f1", "acc_norm"],
    **{
        f"kobest_{task}_masked": ["acc", "acc_tokens", "acc_norm", "acc_bytes"]
        for task in ("copa", "hellaswag", "sentineg")
    },
    "real_coref": ["real@1", "real@5", "real@1_strict"],
    "ko_lambada": ["lambada@1", "lambada@1_strict"],
    "ko_lambada_wiki": ["lambada@1", "lambada@1_strict"],
}
"""Metrics that files give of a task with the name of a benchmark."""


def test_of_several_scorers_the_one_of_our_own_benchmark_is_chosen() -> None:
    primaries = {kit.spec.name: kit.spec.primary for kit in kits()}
    assert set(primaries) <= set(SCORERS)
    for task, primary in primaries.items():
        assert {primary_of(task, order) for order in permutations(SCORERS[task])} == {primary}


@pytest.mark.parametrize(
    ("task", "metrics", "best"),
    [
        ("minerva_math", ["exact_match", "math_verify"], "math_verify"),
        ("minerva_math_counting_and_prob", ["exact_match", "math_verify"], "math_verify"),
        ("minerva_math500", ["exact_match", "math_verify"], "math_verify"),
        ("hendrycks_math_geometry", ["exact_match", "math_verify"], "math_verify"),
        ("hendrycks_math500", ["exact_match"], "exact_match"),
        ("mathqa", ["acc", "acc_norm"], "acc"),
        ("gsm8k_cot", ["exact_match_strict", "exact_match_flexible"], "exact_match_flexible"),
        ("gsm8k_cot_zeroshot", ["exact_match_strict"], "exact_match_strict"),
        ("arc_challenge_chat", ["acc", "acc_norm"], "acc_norm"),
        ("humaneval", ["pass@10_create_test", "pass@1_create_test"], "pass@1_create_test"),
        ("mbpp", ["pass_at_10", "pass_at_1"], "pass_at_1"),
        ("ifeval", ["prompt_level_strict_acc", "inst_level_strict_acc"], "prompt_level_strict_acc"),
        ("squad", ["em", "f1"], "f1"),
    ],
)
def test_a_task_of_a_family_is_judged_by_the_familys_best_scorer(
    task: str, metrics: list[str], best: str
) -> None:
    assert primary_of(task, metrics) == best


def minerva(folder: Path, model: str, right: Mapping[str, float]) -> Path:
    """A results file of two subjects, as lm-evaluation-harness writes it, with these scorers."""
    folder.mkdir()
    values: dict[str, Any] = {"alias": "x"}
    for metric, value in right.items():
        values |= {f"{metric},none": value, f"{metric}_stderr,none": error(value, 100)}
    results = {f"minerva_math_{subject}": values for subject in ("algebra", "geometry")}
    more = {"n-samples": {task: {"original": 100, "effective": 100} for task in results}}
    return lm_eval(folder, results, model_name=model, **more)


def compared(a: Path, b: Path) -> PairComparison:
    (first,), (second,) = read_file(a, {}).candidates, read_file(b, {}).candidates
    return compare_pair(first, second)


def test_results_of_math_are_compared_by_the_better_scorer(tmp_path: Path) -> None:
    both = {"exact_match": 0.1, "math_verify": 0.4}
    a, b = minerva(tmp_path / "a", "a", both), minerva(tmp_path / "b", "b", both | {"math_verify": 0.5})
    pair = compared(a, b)
    assert [(line.metric, line.comparison.new) for line in pair.judged.values()] == [("math_verify", 0.5)] * 2
    assert not [note for note in comparison.notes(pair) if "compared by" in note]


@pytest.mark.parametrize(("first", "side"), [(True, "A"), (False, "B")])
def test_where_one_side_lacks_the_better_scorer_both_go_by_the_other_and_a_note_says_so(
    tmp_path: Path, first: bool, side: str
) -> None:
    a = minerva(tmp_path / "a", "a", {"exact_match": 0.1, "math_verify": 0.4})
    b = minerva(tmp_path / "b", "b", {"exact_match": 0.2})
    pair = compared(a, b) if first else compared(b, a)
    assert {line.metric for line in pair.judged.values()} == {"exact_match"}
    assert (
        f"compared by exact_match, since only {side} has math_verify: all 2 benchmarks"
        in comparison.notes(pair)
    )


def test_what_was_imported_by_another_scorer_is_compared_by_the_better_one(tmp_path: Path) -> None:
    both = {"exact_match": 0.1, "math_verify": 0.4}
    (one,) = read_file(minerva(tmp_path / "a", "a", both), {}).candidates
    old = {
        name: replace(entry, saved=replace(entry.saved, primary="exact_match"))
        for name, entry in one.entries.items()
    }
    pair = compare_pair(replace(one, entries=old), one)
    assert {line.metric for line in pair.judged.values()} == {"math_verify"}


def test_a_run_is_judged_by_its_own_metric_where_the_file_has_it_too(tmp_path: Path) -> None:
    results = {"gsm8k": {"exact_match,strict-match": 0.5, "exact_match,flexible-extract": 0.75}}
    (paper,) = read_file(lm_eval(tmp_path, results, model_name="p"), {}).candidates
    mine = ran("mine", {"gsm8k": {"exact_match_strict": [1.0, 0.0], "exact_match_flexible": [1.0, 1.0]}})
    pair = compare_pair(paper, mine)
    assert (
        pair.judged["gsm8k"].metric == "exact_match_strict"
    )  # the first metric of this made-up run is its own


def test_a_perplexity_is_compared_by_its_log_probability() -> None:
    found = metrics_of({"perplexity,none": 20.0, "perplexity_stderr,none": 0.5}, where="x", n=100)
    assert found.aggregate == {"perplexity": {"by": "perplexity", "of": "perplexity_logprob"}}
    mean = found.metrics["perplexity_logprob"]
    assert (mean.value, mean.stderr) == pytest.approx((-math.log(20), 0.025))


def test_metrics_of_which_less_is_better_and_what_is_no_number_are_left_out() -> None:
    values = {
        "bits_per_byte": 0.9,
        "acc": 0.5,
        "name": "x",
        "acc_norm": "N/A",
        "list": [1],
        "b": True,
    }
    found = metrics_of({**values, "nan": math.nan}, where="x")
    assert list(found.metrics) == ["acc"]


# lm-evaluation-harness

DATE = "2026-01-21T03-44-18.458309"


def lm_eval(tmp_path: Path, results: dict[str, Any], **more: Any) -> Path:
    content = {
        "results": results,
        "configs": {},
        "versions": dict.fromkeys(results, 3.0),
        "n-shot": dict.fromkeys(results, 5),
        "config": {"model": "hf", "model_args": "pretrained=org/m,peft=runs/lora", "limit": None},
        "model_name": "org/m",
        **more,
    }
    return dumped(tmp_path / f"results_{DATE}.json", content)


def sample(doc_id: int, score: float, choice: str = "none", **more: Any) -> str:
    found = {"doc_id": doc_id, "doc_hash": f"h{doc_id}", "filter": choice, "metrics": ["exact_match"]}
    return json.dumps({**found, "exact_match": score, "target": "1", **more}) + "\n"


def test_results_of_lm_eval_are_read_with_sizes_and_conditions(tmp_path: Path) -> None:
    results = {
        "gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.1, "exact_match,flexible-extract": 0.2}
    }
    path = lm_eval(tmp_path, results, **{"n-samples": {"gsm8k": {"original": 1319, "effective": 100}}})
    (one,) = read_file(path, {}).candidates
    saved = one.entries["gsm8k"].saved
    assert one.name == "org/m + runs/lora"
    assert (saved.primary, saved.scored) == ("exact_match_flexible", 100)
    assert (saved.of, saved.mark) == (1319, "100 of 1,319 items")
    assert saved.metrics["exact_match_strict"].value == 0.1
    assert (saved.conditions["shots"], saved.conditions["version"]) == (5, 3.0)


def test_a_file_of_our_own_keeps_the_marks_of_its_tasks(tmp_path: Path) -> None:
    task = {"acc": 0.5, "acc_stderr": 0.1, "samples": 24, "of": 32, "mark": "24 of 32 items, sample of 2,376"}
    path = dumped(
        tmp_path / "c_results.json", {"model": "c", "results": {"arc_easy": task, "drop": {"f1": 0.2}}}
    )
    (one,) = read_file(path, {}).candidates
    saved = one.entries["arc_easy"].saved
    assert list(saved.metrics) == ["acc"]
    assert (saved.scored, saved.of, saved.mark, saved.part) == (24, 32, task["mark"], True)
    assert (one.entries["drop"].saved.of, one.entries["drop"].saved.mark) == (0, "")


def test_korean_results_over_part_of_a_set_say_so(tmp_path: Path) -> None:
    row = {"checkpoint": "c", "real1": 0.5, "real5": 0.5, "coref_samples": 2, "coref_of": 400, "mark": "x"}
    (one,) = read_file(dumped(tmp_path / "c_eval_results.json", row), {}).candidates
    saved = one.entries["real_coref"].saved
    assert (saved.of, saved.mark) == (400, "2 of 400 items")


def test_old_results_without_filters_and_sizes_are_read_by_our_names(tmp_path: Path) -> None:
    old = {
        "results": {
            "hendrycksTest-college_physics": {"acc": 0.25, "acc_stderr": error(0.25, 100)},
            "lambada_openai": {"ppl": 10.0, "ppl_stderr": 0.1, "acc": 0.5, "acc_stderr": error(0.5, 200)},
            "crows_pairs_english": {"likelihood_difference": 3.4},
        },
        "versions": {"hendrycksTest-college_physics": 0},
        "config": {"model": "hf-causal", "model_args": "pretrained=org/p,revision=step3", "num_fewshot": 0},
    }
    one = read_lm_eval(dumped(tmp_path / "160m.json", old), {})
    assert one.name == "org/p@step3"
    assert {name: (entry.saved.primary, entry.saved.scored) for name, entry in one.entries.items()} == {
        "mmlu_college_physics": ("acc", 100),
        "lambada": ("acc", 200),
    }
    (note,) = one.notes
    assert not missing(note, "160m.json", "crows_pairs_english")


def test_metrics_that_a_file_of_lm_eval_declares_as_better_when_lower_are_so(tmp_path: Path) -> None:
    results = {"t": {"acc,none": 0.5, "toxicity,none": 0.2, "perplexity,none": 9.0}}
    better = {"t": {"acc": True, "toxicity": False, "perplexity": False}}
    saved = read_lm_eval(lm_eval(tmp_path, results, higher_is_better=better), {}).entries["t"].saved
    directions = {name: saved.aggregation(name).higher_is_better for name in saved.metrics}
    assert directions == {"acc": True, "toxicity": False, "perplexity_logprob": True, "perplexity": False}


def test_groups_are_left_out_where_their_tasks_are_there(tmp_path: Path) -> None:
    results = {name: {"acc,none": 0.5} for name in ("mmlu", "mmlu_college_physics", "alone")}
    path = lm_eval(tmp_path, results, group_subtasks={"mmlu": ["mmlu_college_physics"], "alone": []})
    one = read_lm_eval(path, {})
    assert list(one.entries) == ["mmlu_college_physics", "alone"]
    assert "mmlu is left out" in one.notes[0]


def test_groups_of_0_4_0_are_left_out_where_tasks_are_told_as_parts(tmp_path: Path) -> None:
    results = {
        "mmlu": {"acc,none": 0.3, "alias": "mmlu"},
        "mmlu_stem": {"acc,none": 0.3, "alias": " - stem"},
        "mmlu_anatomy": {"acc,none": 0.3, "alias": "  - anatomy"},
        "arc_easy": {"acc,none": 0.6},
    }
    groups = {name: results[name] for name in ("mmlu", "mmlu_stem")}
    assert list(read_lm_eval(lm_eval(tmp_path, results, groups=groups), {}).entries) == [
        "mmlu_anatomy",
        "arc_easy",
    ]
    alone = {name: results[name] for name in ("mmlu", "arc_easy")}
    assert list(read_lm_eval(lm_eval(tmp_path, alone, groups={"mmlu": {}}), {}).entries) == [
        "mmlu",
        "arc_easy",
    ]


def test_averages_are_left_out_beside_the_tasks_that_they_are_of(tmp_path: Path) -> None:
    names = ("all", "leaderboard|mmlu:_average|5", "leaderboard|mmlu:anatomy|5", "leaderboard|gsm8k|5")
    path = lm_eval(tmp_path, {name: {"acc": 0.5} for name in names})
    assert list(read_lm_eval(path, {}).entries) == [*names[2:]]
    own = dumped(
        tmp_path / "a_results.json", {"results": {name: {"acc": 0.5} for name in ("average", "arc")}}
    )
    assert list(read_task_file(own, {}).entries) == ["arc"]
    assert list(read_lm_eval(lm_eval(tmp_path, {"all": {"acc": 0.5}}), {}).entries) == ["all"]


def test_a_list_of_shots_has_one_number_for_each_task(tmp_path: Path) -> None:
    results = {"arc_easy": {"acc": 0.5}, "piqa": {"acc": 0.5}}
    for shots, expected in (([2, 3], [2, 3]), ([2, 3, 4], [None, None]), ("many", [None, None])):
        path = dumped(tmp_path / "old.json", {"results": results, "config": {"num_fewshot": shots}})
        entries = read_lm_eval(path, {}).entries.values()
        assert [entry.saved.conditions.get("shots") for entry in entries] == expected


def test_of_results_nested_by_the_date_of_a_run_the_newest_count(tmp_path: Path) -> None:
    dates = {"2022-07-07-20-56-53": {"acc": 0.7}, "2022-08-01-00-00-00": {"acc": 0.8}}
    one = read_task_file(dumped(tmp_path / "a_results.json", {"results": {"arc_easy": dates}}), {})
    assert one.entries["arc_easy"].saved.metrics["acc"].value == 0.8


@pytest.mark.parametrize("values", [(0, 1), (False, True), (0.0, 1.0)])
def test_scores_of_samples_count_whatever_kind_of_number_they_are(tmp_path: Path, values: Any) -> None:
    path = lm_eval(tmp_path, {"t": {"exact_match,none": 0.5}}, **{"n-samples": {"t": {"effective": 2}}})
    lines = [
        json.dumps({"doc_id": n, "doc_hash": f"h{n}", "filter": "none", "target": 1, "exact_match": value})
        for n, value in enumerate(values)
    ]
    (tmp_path / f"samples_t_{DATE}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert read_lm_eval(path, {}).entries["t"].items.scores == {"exact_match": [0.0, 1.0]}


def test_complete_samples_beside_the_results_are_its_items(tmp_path: Path) -> None:
    results = {"gsm8k": {"exact_match,strict-match": 0.5, "exact_match,flexible-extract": 1.0}}
    path = lm_eval(tmp_path, results, **{"n-samples": {"gsm8k": {"effective": 2}}})
    lines = [
        sample(doc, score, filtered)
        for filtered, scores in (("strict-match", (0.0, 1.0)), ("flexible-extract", (1.0, 1.0)))
        for doc, score in enumerate(scores)
    ]
    (tmp_path / f"samples_gsm8k_{DATE}.jsonl").write_text("".join(lines), encoding="utf-8")
    items = read_lm_eval(path, {}).entries["gsm8k"].items
    assert (items.examples, items.rows) == (["gsm8k/0", "gsm8k/1"], ["h0", "h1"])
    assert items.scores == {"exact_match_strict": [0.0, 1.0], "exact_match_flexible": [1.0, 1.0]}


def test_imported_results_with_items_keep_them_and_their_answers(tmp_path: Path) -> None:
    path = lm_eval(tmp_path, {"t": {"exact_match,none": 0.5}})
    samples = tmp_path / f"samples_t_{DATE}.jsonl"
    samples.write_text(sample(0, 1.0) + sample(1, 0.0), encoding="utf-8")
    store = ResultStore(tmp_path / "results")
    (one,) = read_file(path, {}).candidates
    save(store, one, 5.0)
    found = with_items(store, saved_candidates(store)[0]).entries["t"]
    assert found.items == one.entries["t"].items
    assert found.answers == samples.resolve()
    assert found.saved.items_sha256 == found.items.digest()


def test_samples_of_a_part_of_the_items_are_not_taken_for_all(tmp_path: Path) -> None:
    path = lm_eval(tmp_path, {"t": {"exact_match,none": 0.5}}, **{"n-samples": {"t": {"effective": 5000}}})
    (tmp_path / f"samples_t_{DATE}.jsonl").write_text(sample(0, 1.0) + sample(1, 0.0), encoding="utf-8")
    one = read_lm_eval(path, {})
    assert one.entries["t"].items.examples == []
    (note,) = one.notes
    assert not missing(note, f"results_{DATE}.json", "samples of 2", "5000 items of t")


def test_a_sample_without_its_number_is_named(tmp_path: Path) -> None:
    path = lm_eval(tmp_path, {"t": {"exact_match,none": 0.5}})
    (tmp_path / f"samples_t_{DATE}.jsonl").write_text('{"exact_match": 1.0}\n', encoding="utf-8")
    with pytest.raises(DataError, match="row 1: doc_id is None"):
        read_lm_eval(path, {})


# Which form a file has


@pytest.mark.parametrize(
    "content", ["", "[", "[]", "{}", "3", '{"results": 1}', '{"results": {"a": 1}}', '{"model": "m"}']
)
def test_a_file_of_no_known_form_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"x\.json: .*(JSON|forms)") as caught:
        read_file(path, {})
    assert "\n" not in str(caught.value)


def test_a_file_by_checkpoint_is_read_also_as_a_list(tmp_path: Path) -> None:
    fields = {
        "checkpoint": "runs/a/checkpoint-655",
        "real1": 0.6,
        "real5": 0.8,
        "lambada_top1": 0.3,
        "score": 0.7,
        "coref_samples": 400,
        "checkpoint_info": {"global_step": 655, "epoch": 5.0, "seq_len": 1536},
    }
    for content in (fields, [fields, {**fields, "checkpoint": "b", "real1": "much"}]):
        table = read_file(dumped(tmp_path / "checkpoint-655_eval_results.json", content), {})
        (one,) = table.candidates
        assert (one.name, one.about["step"]) == ("runs/a/checkpoint-655", 655)
        assert one.entries["real_coref"].saved.scored == 400
        assert [wrong.composite for wrong in table.contradictions] == ["score"]
        assert [bad.column for bad in table.bad] == (["real1"] if isinstance(content, list) else [])
