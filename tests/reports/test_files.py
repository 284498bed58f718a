"""The files of a finished run, and the forms of the systems whose scripts read them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.cli.score import rescore
from pytest_touchstone.compare.formats import korean_mlm, task_json
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.eval_config import AS_THE_RUN
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.files import file_name, write_atomic, write_json
from pytest_touchstone.core.requests import (
    CallTests,
    InputOutputTests,
    RunProgram,
    RunProgramAnswer,
    to_plain,
)
from pytest_touchstone.engines.answers.files import read_answers
from pytest_touchstone.reports import files
from pytest_touchstone.reports.files import write_beside, write_code_files, write_results
from pytest_touchstone.results.journal import LONGEST_KEPT, Journal, iter_records, shorten_request
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Summary, load_summary
from tests.support.code_runs import Bench, by_word
from tests.support.lines import missing
from tests.support.places import ROOT
from tests.support.rows import read_csv, read_jsonl
from tests.support.summaries import SUBJECTS, checkpoint_row, sample

KOREAN = ["real_coref", "ko_lambada_wiki"]


def read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_run_writes_every_file_and_says_which(tmp_path):
    written = write_results(sample(2), tmp_path / "results" / "r")
    folder = tmp_path / "results" / "r"
    assert set(written) == {path for path in folder.rglob("*") if path.is_file()}
    assert {path.name for path in folder.iterdir()} == {
        "summary.json",
        "results.csv",
        "report.html",
        "details",
    }
    assert {path.name for path in written} >= {
        "winogrande_results.json",
        "mmlu_stem_results.json",
        "checkpoint-100_results.json",
        "checkpoint-200_eval_results.json",
        "checkpoints.csv",
        "errors.log",
    }


def test_a_run_with_a_file_of_benchmarks_has_the_results_of_each_at_its_top(tmp_path):
    write_results(replace(sample(2), manifest={"settings": {"config": "eval.json"}}), tmp_path)
    names = {path.name for path in tmp_path.glob("*_results.json")}
    assert names >= {"winogrande_results.json", "mmlu_stem_results.json"}
    assert "checkpoint-100_results.json" not in names


def test_a_folder_keeps_its_files_where_they_are(tmp_path):
    (tmp_path / "errors.log").write_text("before")
    write_results(sample(1), tmp_path)
    assert (tmp_path / "errors.log").read_text() != "before"
    assert not (tmp_path / "details" / "errors.log").exists()


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
    [
        (None, "No such file"),
        ("{", "summary.json: "),
        ("[]", "no summary of schema 1"),
        ("{}", "schema=None"),
    ],
)
def test_a_folder_without_a_summary_is_refused_with_its_path(tmp_path, content, said):
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(HarnessError, match=said) as caught:
        load_summary(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_disk_that_refuses_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HarnessError, match=r"/file: File exists; .*another"):
        write_results(sample(1), tmp_path / "file")


def test_a_benchmark_file_has_all_checkpoints_and_groups(tmp_path):
    write_results(sample(2), tmp_path)
    data = read(tmp_path / "details" / "mmlu_stem_results.json")
    assert (data["name"], data["kind"]) == ("mmlu_stem", "benchmark")
    assert data["dataset"]["rows"] == 32
    assert len(data["results"]) == 2 * (len(SUBJECTS) + 1)


def test_the_error_log_names_each_fault_with_its_message(tmp_path):
    write_results(sample(1), tmp_path)
    log = (tmp_path / "details" / "errors.log").read_text()
    assert "timeout  evals/test_winogrande.py::test_winogrande[checkpoint-100-winogrande/2]\n" in log
    assert "    RequestError: " in log
    assert "two masks\n    more [/b]\n" in log


def test_the_error_log_of_a_clean_run_is_empty(tmp_path):
    write_results(sample(1), tmp_path)
    write_results(sample(1, faults=False), tmp_path)
    assert (tmp_path / "details" / "errors.log").read_text() == ""


def test_a_checkpoint_named_like_a_benchmark_does_not_overwrite_its_file(tmp_path):
    summary = sample(1, benchmarks=["winogrande"])
    renamed = [replace(result, checkpoint="winogrande") for result in summary.results]
    write_results(replace(summary, results=renamed), tmp_path)
    assert read(tmp_path / "details" / "winogrande_results.json")["kind"] == "benchmark"
    assert read(tmp_path / "details" / "checkpoint-winogrande_results.json")["model"] == "winogrande"


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
    assert read(tmp_path / "details" / "checkpoint-100_eval_results.json")["real1"] == value
    assert (
        read(tmp_path / "details" / "checkpoint-100_results.json")["results"]["real_coref"]["real@1"] == value
    )


SAMPLING = Sampling(5, 0.2, 0.95, 1234)
LONG = "    # " + "x" * 3000 + "\n    return right\n"


def journal(folder: Path, records: list[Record]) -> set[str]:
    with Journal(folder, "main") as shard:
        for record in records:
            shard.append(record)
    return {record.item for record in records if record.status != "scored"}


def humaneval_run(folder: Path) -> set[str]:
    bench = Bench("humaneval", SAMPLING)
    texts = (
        ["    return right\n"] * 3 + ["    slow\n"] * 2,
        [LONG, "    a\n", "    b\n", "    c\n", "    d\n"],
    )
    records = [bench.record(place, bench.ask(place, texts[place > 2], by_word)) for place in (10, 2)]
    return journal(folder, records)


def test_a_row_a_task_and_a_line_a_sample(tmp_path: Path) -> None:
    written = write_code_files(tmp_path, humaneval_run(tmp_path))
    assert [path.name for path in written] == ["humaneval_tasks.csv", "humaneval_samples.jsonl"]
    rows = read_csv(written[0])
    outcomes = ["wrong", "error", "timeout", "memory", "crashed", "refused", "fault"]
    assert list(rows[0]) == ["task_id", "samples", "passed", "pass@1", "pass@5", *outcomes]
    assert [row["task_id"] for row in rows] == ["HumanEval/2", "HumanEval/10"]
    assert (rows[0]["samples"], rows[0]["passed"], rows[0]["pass@1"], rows[0]["timeout"]) == (
        "5",
        "3",
        "0.6",
        "2",
    )
    samples = read_jsonl(written[1])
    assert [(one["task_id"], one["sample"], one["outcome"]) for one in samples[:5]] == [
        ("HumanEval/2", number, "passed" if number < 3 else "timeout") for number in range(5)
    ]
    assert samples[0]["completion"] == "    return right\n"
    assert "detail" not in samples[0]
    assert samples[4]["detail"] == "more than 3 s"


def test_the_samples_can_be_graded_as_the_same_programs(tmp_path: Path) -> None:
    """Also of a prompt and a completion that are longer than what the journal keeps of a text."""
    bench = Bench("humaneval", SAMPLING)
    longest = max(range(164), key=lambda n: len(bench.loaded.dataset.examples[n].row["prompt"]))
    assert len(bench.loaded.dataset.examples[longest].row["prompt"]) > LONGEST_KEPT
    whole = "Here:\n```python\nimport re\n\ndef FUNCTION(*_):\n    return right\n```\n"
    entry = bench.loaded.dataset.examples[longest].row["entry_point"]
    texts = [LONG, whole.replace("FUNCTION", entry), "    return 1\n# cut", "", "    x"]
    asked = bench.ask(longest, texts, by_word)
    unscored = journal(tmp_path, [bench.record(longest, asked)])
    path = write_code_files(tmp_path, unscored)[1]
    begun = {"completion": bench.loaded.dataset.examples[longest].row["prompt"], "solution": ""}
    programs = [
        begun[row.provenance.program] + row.texts[0]
        for row in read_answers(path).rows
        if row.provenance.program
    ]
    assert programs == [request.program for request in asked.programs]
    found = read_jsonl(path)
    assert ["completion" in one for one in found] == [True, False, True, True, True]
    assert found[0]["completion"] == LONG
    assert [one.get("text") for one in found] == [None, texts[1], texts[2], None, None]


def test_programs_that_do_not_begin_with_the_prompt_are_solutions(tmp_path: Path) -> None:
    bench = Bench("mbpp")
    unscored = journal(tmp_path, [bench.record(0, bench.ask(0, ["def f(): right\n"], by_word))])
    path = write_code_files(tmp_path, unscored)[1]
    assert path.name == "mbpp_samples.jsonl"
    (line,) = read_jsonl(path)
    assert (line["task_id"], line["solution"], line["passed"]) == ("11", "def f(): right\n", True)


def test_each_checkpoint_has_files_of_its_own(tmp_path: Path) -> None:
    bench = Bench("mbpp")
    asked = bench.ask(0, ["right"], by_word)
    unscored = journal(tmp_path, [bench.record(0, asked, "step-1"), bench.record(0, asked, "step-2")])
    names = [path.name for path in write_code_files(tmp_path, unscored)]
    assert names == [f"step-{n}_mbpp_{what}" for n in (1, 2) for what in ("tasks.csv", "samples.jsonl")]


def test_only_the_last_record_of_a_scored_item_counts(tmp_path: Path) -> None:
    bench = Bench("mbpp")
    first = bench.record(0, bench.ask(0, ["wrong"], by_word))
    last = bench.record(0, bench.ask(0, ["right"], by_word))
    failed = bench.record(1, bench.ask(1, ["right"], by_word))
    unscored = journal(tmp_path, [first, last, failed]) | {failed.item}
    (line,) = read_jsonl(write_code_files(tmp_path, unscored)[1])
    assert line["passed"]


def test_a_run_without_programs_has_no_such_files(tmp_path: Path) -> None:
    other = Record(
        item="a", benchmark="b", example="b/0", checkpoint="c", status="scored", scores={"acc": 1.0}
    )
    text = {"kind": "Generate", "request": {"prompt": '"kind":"RunProgram"'}, "answer": {"samples": []}}
    unscored = journal(tmp_path, [other, Record(**{**_fields(other), "item": "d", "exchanges": [text]})])
    assert write_code_files(tmp_path, unscored) == []
    assert list(iter_records(tmp_path, kind="RunProgram")) == []
    assert [record.item for record in iter_records(tmp_path, kind="Generate")] == ["d"]


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in Record.__dataclass_fields__}


def test_of_very_many_samples_the_first_of_every_task_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_SAMPLES", 5)
    written = write_code_files(tmp_path, humaneval_run(tmp_path))
    assert [one["sample"] for one in read_jsonl(written[1])] == [0, 1, 0, 1]
    assert [row["samples"] for row in read_csv(written[0])] == ["5", "5"]


def test_the_reference_graders_verdict_and_a_missing_isolation_are_noted(tmp_path: Path) -> None:
    bench = Bench("mbpp")

    def judge(_: RunProgram) -> RunProgramAnswer:
        return RunProgramAnswer("passed", reference_outcome="wrong", unsandboxed=True)

    unscored = journal(tmp_path, [bench.record(0, bench.ask(0, ["x"], judge))])
    (line,) = read_jsonl(write_code_files(tmp_path, unscored)[1])
    assert (line["reference_outcome"], line["unsandboxed"]) == ("wrong", True)


# The journal


def test_the_journal_keeps_programs_whole_and_long_tests_by_their_hash() -> None:
    calls = RunProgram(
        "p" * 5000, CallTests("c" * 5000, trusted="t" * 5000, names=("f",)), task="t/1", reference="r" * 5000
    )
    found = shorten_request(to_plain(calls))
    assert found["program"] == "p" * 5000
    assert found["tests"]["names"] == ["f"]
    assert found["tests"]["code"] == "…" + "c" * LONGEST_KEPT
    assert len(json.dumps(found)) < 9000
    other = shorten_request(to_plain(RunProgram("p" * 5000, CallTests("d" + "c" * 4999), task="t/1")))
    assert other["tests"]["code_sha256"] != found["tests"]["code_sha256"]


@pytest.mark.parametrize(
    ("pairs", "left"),
    [
        ((("1", "2"),) * 3, [["1", "2"]] * 3),
        ((("1", "2"),) * 500, [["1", "2"]]),
        ((("1", "2"), ("1" * 90_000, "2")), []),
    ],
)
def test_of_many_or_long_pairs_the_journal_keeps_little(
    pairs: tuple[tuple[str, str], ...], left: list[list[str]]
) -> None:
    found = shorten_request(to_plain(RunProgram("", InputOutputTests(pairs), task="t/1")))
    assert found["tests"]["pairs"] == left
    assert ("pairs_sha256" in found["tests"]) is (len(left) < len(pairs))


# Scoring again


def test_the_verdicts_of_a_run_can_be_scored_again(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                "rootdir": str(ROOT),
                "settings": {"seed": 1234, "samples": 5, "temperature": 0.2, "top_p": 0.95, "shots": None},
                "checkpoints": [{"name": "fake-causal"}],
            }
        ),
        encoding="utf-8",
    )
    bench = Bench("codecontests", SAMPLING)
    asked = bench.ask(3, ["print('right')"] * 3 + ["slow", "x"], by_word)
    before = bench.record(3, asked)
    other = Record(
        **{**_fields(before), "item": before.item.replace("/3]", "/3-b]"), "scores": {"pass@1": 0.0}}
    )
    journal(tmp_path, [before, other])
    found = rescore(tmp_path)
    assert (found.items, found.unscored) == (2, [])
    (change,) = found.changes
    assert change.scores["pass@1"] == (0.0, 0.6)


def placed(folder: Path, summary: Summary, **more: Any) -> Summary:
    """The summary of checkpoints that are folders below a folder, or are elsewhere by ``more``."""
    rows = []
    for row in summary.checkpoints:
        path = folder / row["name"]
        path.mkdir(parents=True, exist_ok=True)
        rows.append({**row, "source": str(path), "path": str(path), "series": str(folder), **more})
    return replace(summary, checkpoints=rows)


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_each_checkpoint_gets_a_file_beside_it_that_names_its_path(tmp_path: Path) -> None:
    found = write_beside(placed(tmp_path / "runs", sample(2)))
    names = [path.relative_to(tmp_path).as_posix() for path in found.written]
    assert names == ["runs/checkpoint-100_eval_results.json", "runs/checkpoint-200_eval_results.json"]
    assert sorted(found.written) == sorted((tmp_path / "runs").rglob("*_eval_results.json"))
    row = content(found.written[0])
    assert row["checkpoint"] == row["checkpoint_info"]["path"] == str(tmp_path / "runs" / "checkpoint-100")
    assert row["checkpoint_info"]["global_step"] == 100
    assert {"real1", "real5", "lambada_top1", "score", "coref_samples", "seq_len"} <= row.keys()
    assert not found.error


def test_a_file_reads_back_with_every_benchmark_and_the_place_in_the_series(tmp_path: Path) -> None:
    summary = placed(tmp_path, sample(1, faults=False))
    (candidate,) = read_file(write_beside(summary).written[0], {}).candidates
    assert {"real_coref", "ko_lambada_wiki", "winogrande", "lambada_openai"} <= candidate.entries.keys()
    assert (candidate.about["step"], candidate.about["epoch"]) == (100, 1.0)
    for name in ("real_coref", "winogrande"):
        (result,) = [one for one in summary.results if one.name == name]
        assert (
            candidate.entries[name].saved.metrics[result.primary].value
            == result.metrics[result.primary].value
        )


def test_benchmarks_of_causal_models_have_a_file_too(tmp_path: Path) -> None:
    summary = placed(tmp_path, sample(1, benchmarks=["winogrande"], faults=False))
    (path,) = write_beside(summary).written
    assert "real1" not in content(path)
    (candidate,) = read_file(path, {}).candidates
    assert [*candidate.entries] == ["winogrande"]
    assert candidate.about == {"series": str(tmp_path), "step": 100, "epoch": 1.0, "seq_len": 512}


def test_our_own_file_is_written_again_and_anybody_elses_stays(tmp_path: Path) -> None:
    summary = placed(tmp_path, sample(2))
    theirs, ours = (tmp_path / f"checkpoint-{step}_eval_results.json" for step in (100, 200))
    theirs.write_text('{"checkpoint": "checkpoint-100", "real1": 0.6}', encoding="utf-8")
    ours.write_text('{"schema": 1, "run_id": "earlier"}', encoding="utf-8")
    found = write_beside(summary)
    assert content(theirs) == {"checkpoint": "checkpoint-100", "real1": 0.6}
    assert found.written == [ours]
    assert content(ours)["run_id"] == summary.run_id
    assert not missing(
        found.error, "checkpoint-100_eval_results.json", "another program's file", "move it away"
    )


def test_a_folder_that_cannot_be_written_is_one_line_and_the_others_get_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = placed(tmp_path, sample(2))
    (tmp_path / "checkpoint-100_eval_results.json").mkdir()
    found = write_beside(summary)
    assert [path.name for path in found.written] == ["checkpoint-200_eval_results.json"]
    error = found.error
    assert "checkpoint-100_eval_results.json: Is a directory" in error
    assert "\n" not in error
    assert "the run's folder" in error


@pytest.mark.parametrize("source", ["builtin:tiny", "fake:causal", "org/model", "hub:org/model"])
def test_what_is_no_path_of_the_users_gets_no_file_and_a_line(tmp_path: Path, source: str) -> None:
    found = write_beside(placed(tmp_path / "cache", sample(1), source=source))
    assert found.written == []
    (line,) = found.lines
    assert not missing(line, "nothing for checkpoint-100", "path")


def test_two_files_of_one_name_get_a_file_of_results_each(tmp_path: Path) -> None:
    rows = []
    for step, name in ((100, "best.pt"), (200, "best.gguf")):
        (tmp_path / name).touch()
        path = str(tmp_path / name)
        rows.append({**checkpoint_row(f"checkpoint-{step}", step), "source": path, "path": path})
    found = write_beside(replace(sample(2), checkpoints=rows))
    assert [path.name for path in found.written] == [
        "best_eval_results.json",
        "checkpoint-200_eval_results.json",
    ]
    assert [content(path)["checkpoint"] for path in found.written] == [row["path"] for row in rows]


def test_a_metric_is_no_family_where_it_is_there_by_name() -> None:
    record = Record(
        item="a",
        benchmark="arc",
        example="arc/0",
        checkpoint="c",
        status="scored",
        scores={"acc": 1.0, "acc_norm": 0.0, "f1_macro": 0.5},
    )
    for name, scores in (("acc", "acc 1"), ("f1", "f1_macro 0.5"), ("acc_norm", "acc_norm 0")):
        _, line = files._log_lines("arc", [], [record], replace(AS_THE_RUN, metrics=(name,)))
        assert line.partition(" s: ")[2] == scores
