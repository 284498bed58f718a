"""The files of a finished run, and the forms of the systems whose scripts read them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.formats import korean_mlm, task_json
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import file_name, write_atomic, write_json
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.results.summary import load_summary
from tests.support.summaries import SUBJECTS, sample

KOREAN = ["real_coref", "ko_lambada_wiki"]


def read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_run_writes_every_file_and_says_which(tmp_path):
    written = write_results(sample(2), tmp_path / "results" / "r")
    names = {path.name for path in written}
    assert names == {path.name for path in (tmp_path / "results" / "r").iterdir()}
    assert names >= {
        "summary.json",
        "winogrande_results.json",
        "mmlu_stem_results.json",
        "checkpoint-100_results.json",
        "checkpoint-200_eval_results.json",
        "checkpoints.csv",
        "results.csv",
        "report.html",
        "errors.log",
    }


def test_the_folder_of_the_run_is_the_default(tmp_path):
    write_results(replace(sample(1), directory=str(tmp_path / "r")))
    assert (tmp_path / "r" / "summary.json").is_file()


def test_every_json_file_has_a_schema_and_no_nan(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    for path in write_results(sample(2), tmp_path):
        if path.suffix == ".json":
            assert json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)["schema"] == 1


def test_a_summary_reads_back_as_it_was_written(tmp_path):
    summary = sample(3)
    write_results(summary, tmp_path)
    assert load_summary(tmp_path) == replace(summary, directory=str(tmp_path))


def test_the_summary_file_names_the_best_checkpoints(tmp_path):
    write_results(sample(3, benchmarks=KOREAN), tmp_path)
    best = read(tmp_path / "summary.json")["best"]
    assert set(best) == {"score_wiki", "real1", "real5"}
    assert best["real1"]["of"] == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), ("{", "summary.json: "), ("[]", "not a JSON object"), ("{}", "schema=None")],
)
def test_a_folder_without_a_summary_is_refused_with_its_path(tmp_path, content, said):
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(HarnessError, match=said) as caught:
        load_summary(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_disk_that_refuses_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HarnessError, match="cannot write results into"):
        write_results(sample(1), tmp_path / "file")


def test_a_benchmark_file_has_all_checkpoints_and_groups(tmp_path):
    write_results(sample(2), tmp_path)
    data = read(tmp_path / "mmlu_stem_results.json")
    assert (data["name"], data["kind"]) == ("mmlu_stem", "benchmark")
    assert data["pack"]["rows"] == 32
    assert len(data["results"]) == 2 * (len(SUBJECTS) + 1)


def test_the_error_log_names_each_fault_with_its_message(tmp_path):
    write_results(sample(1), tmp_path)
    log = (tmp_path / "errors.log").read_text()
    assert "timeout  evals/test_winogrande.py::test_winogrande[checkpoint-100-winogrande/2]\n" in log
    assert "    RequestError: the text has two masks\n    more [/b]\n" in log


def test_the_error_log_of_a_clean_run_is_empty(tmp_path):
    write_results(sample(1), tmp_path)
    write_results(sample(1, faults=False), tmp_path)
    assert (tmp_path / "errors.log").read_text() == ""


def test_a_checkpoint_named_like_a_benchmark_does_not_overwrite_its_file(tmp_path):
    summary = sample(1, benchmarks=["winogrande"])
    renamed = [replace(result, checkpoint="winogrande") for result in summary.results]
    write_results(replace(summary, results=renamed), tmp_path)
    assert read(tmp_path / "winogrande_results.json")["kind"] == "benchmark"
    assert read(tmp_path / "checkpoint-winogrande_results.json")["model"] == "winogrande"


def test_rows_by_checkpoint_have_their_keys_and_null_where_not_measured():
    [row] = korean_mlm.rows(sample(1, faults=False))
    keys = (
        "checkpoint",
        "seq_len",
        "real1",
        "real5",
        "lambada_top1",
        "score",
        "coref_samples",
        "checkpoint_info",
    )
    assert set(keys) <= set(row)
    assert set(row["checkpoint_info"]) == {"path", "name", "model_type", "global_step", "epoch", "seq_len"}
    assert row["lambada_top1"] is None
    assert row["score"] is None
    assert row["score_wiki"] == pytest.approx(
        0.4 * row["real1"] + 0.3 * row["real5"] + 0.3 * row["lambada_wiki_top1"]
    )
    assert row["real1_strict"] is not None
    assert row["coref_samples"] == 24


def test_checkpoints_without_the_korean_benchmarks_have_no_such_file(tmp_path):
    assert korean_mlm.rows(sample(1, benchmarks=["winogrande"])) == []
    names = {path.name for path in write_results(sample(1, benchmarks=["winogrande"]), tmp_path)}
    assert "checkpoints.csv" not in names
    assert not [name for name in names if name.endswith("_eval_results.json")]


def test_the_csv_has_a_line_a_checkpoint_with_its_step():
    rows = list(csv.DictReader(korean_mlm.table(korean_mlm.rows(sample(3, benchmarks=KOREAN))).splitlines()))
    assert [row["checkpoint"] for row in rows] == ["checkpoint-100", "checkpoint-200", "checkpoint-300"]
    assert [row["global_step"] for row in rows] == ["100", "200", "300"]
    assert all(row["lambada_top1"] == "" and float(row["real1"]) >= 0 for row in rows)
    assert None not in rows[0]


def test_the_best_is_the_highest_and_the_first_of_equals():
    rows = [
        {"checkpoint": name, **dict.fromkeys(("score", "score_wiki", "real5", "score_stderr"), None)}
        | {"score_wiki_stderr": None, "real5_stderr": None, "real1": value, "real1_stderr": 0.1}
        for name, value in (("a", 0.1), ("b", 0.7), ("c", 0.7), ("d", None))
    ]
    assert korean_mlm.best(rows) == {"real1": {"checkpoint": "b", "value": 0.7, "stderr": 0.1, "of": 3}}
    assert korean_mlm.best([]) == {}


def test_results_by_task_have_a_task_a_subject_and_a_stderr_beside_each_metric():
    data = task_json.by_task(sample(2), "checkpoint-200")
    assert data["model"] == "checkpoint-200"
    assert {f"mmlu_{subject}" for subject in SUBJECTS} < set(data["results"])
    task = data["results"]["mmlu_machine_learning"]
    assert {"acc", "acc_stderr", "samples"} <= set(task)
    assert "acc_macro_stderr" in data["results"]["mmlu_stem"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"old": True})

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert read(path) == {"old": True}
    assert [one.name for one in path.parent.iterdir()] == ["a.json"]


def test_nan_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_any_name_is_a_file_name_of_its_own(one, other):
    name = file_name(one)
    assert "/" not in name
    assert "\0" not in name
    assert name not in ("", ".", "..")
    assert (name == file_name(other)) == (one == other)


@pytest.mark.parametrize("name", ["checkpoint-655", "ko-mlm-tiny", "체크포인트_1", "a=1,b=2+c@d"])
def test_a_usual_name_stays_as_it_is(name):
    assert file_name(name) == name


def test_scores_of_one_run_are_the_same_in_every_file(tmp_path):
    summary = sample(1, faults=False)
    write_results(summary, tmp_path)
    value = {r.benchmark: r for r in summary.results}["real_coref"].metrics["real@1"].value
    assert read(tmp_path / "checkpoint-100_eval_results.json")["real1"] == value
    assert read(tmp_path / "checkpoint-100_results.json")["results"]["real_coref"]["real@1"] == value
