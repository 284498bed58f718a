"""The files of a run's programs, and scoring them again: all from the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli.grade import load_problems, read_samples
from pytest_touchstone.cli.rescore import rescore
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.requests import (
    CallTests,
    InputOutputTests,
    RunProgram,
    RunProgramAnswer,
    to_plain,
)
from pytest_touchstone.reports import files
from pytest_touchstone.reports.files import write_code_files
from pytest_touchstone.results.journal import LONGEST_KEPT, Journal, each_record, journalled
from pytest_touchstone.results.records import Record
from tests.support.code_runs import Bench, by_word
from tests.support.places import ROOT
from tests.support.rows import read_csv, read_jsonl

SAMPLING = Sampling(5, 0.2, 0.95, 1234)
LONG = "    # " + "x" * 3000 + "\n    return right\n"


def journal(folder: Path, records: list[Record]) -> set[str]:
    with Journal(folder, "main") as shard:
        for record in records:
            shard.append(record)
    return {record.item for record in records if record.status == "scored"}


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
    scored = journal(tmp_path, [bench.record(longest, asked)])
    path = write_code_files(tmp_path, scored)[1]
    samples = read_samples(path, "humaneval", load_problems("humaneval"))
    assert [sample.program for sample in samples] == [request.program for request in asked.programs]
    found = read_jsonl(path)
    assert ["completion" in one for one in found] == [True, False, True, True, True]
    assert found[0]["completion"] == LONG
    assert [one.get("text") for one in found] == [None, texts[1], texts[2], None, None]


def test_programs_that_do_not_begin_with_the_prompt_are_solutions(tmp_path: Path) -> None:
    bench = Bench("mbpp")
    scored = journal(tmp_path, [bench.record(0, bench.ask(0, ["def f(): right\n"], by_word))])
    path = write_code_files(tmp_path, scored)[1]
    assert path.name == "mbpp_samples.jsonl"
    (line,) = read_jsonl(path)
    assert (line["task_id"], line["solution"], line["passed"]) == ("11", "def f(): right\n", True)


def test_each_checkpoint_has_files_of_its_own(tmp_path: Path) -> None:
    bench = Bench("mbpp")
    asked = bench.ask(0, ["right"], by_word)
    scored = journal(tmp_path, [bench.record(0, asked, "step-1"), bench.record(0, asked, "step-2")])
    names = [path.name for path in write_code_files(tmp_path, scored)]
    assert names == [f"step-{n}_mbpp_{what}" for n in (1, 2) for what in ("tasks.csv", "samples.jsonl")]


def test_only_the_last_record_of_a_scored_item_counts(tmp_path: Path) -> None:
    bench = Bench("mbpp")
    first = bench.record(0, bench.ask(0, ["wrong"], by_word))
    last = bench.record(0, bench.ask(0, ["right"], by_word))
    failed = bench.record(1, bench.ask(1, ["right"], by_word))
    scored = journal(tmp_path, [first, last, failed]) - {failed.item}
    (line,) = read_jsonl(write_code_files(tmp_path, scored)[1])
    assert line["passed"]


def test_a_run_without_programs_has_no_such_files(tmp_path: Path) -> None:
    other = Record(
        item="a", benchmark="b", example="b/0", checkpoint="c", status="scored", scores={"acc": 1.0}
    )
    text = {"kind": "Generate", "request": {"prompt": '"kind":"RunProgram"'}, "answer": {"samples": []}}
    scored = journal(tmp_path, [other, Record(**{**_fields(other), "item": "d", "exchanges": [text]})])
    assert write_code_files(tmp_path, scored) == []
    assert list(each_record(tmp_path, kind="RunProgram")) == []
    assert [record.item for record in each_record(tmp_path, kind="Generate")] == ["d"]


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

    scored = journal(tmp_path, [bench.record(0, bench.ask(0, ["x"], judge))])
    (line,) = read_jsonl(write_code_files(tmp_path, scored)[1])
    assert (line["reference_outcome"], line["unsandboxed"]) == ("wrong", True)


# The journal


def test_the_journal_keeps_programs_whole_and_long_tests_by_their_hash() -> None:
    calls = RunProgram(
        "p" * 5000, CallTests("c" * 5000, trusted="t" * 5000, names=("f",)), task="t/1", reference="r" * 5000
    )
    found = journalled(to_plain(calls))
    assert found["program"] == "p" * 5000
    assert found["tests"]["names"] == ["f"]
    assert found["tests"]["code"] == "…" + "c" * LONGEST_KEPT
    assert len(json.dumps(found)) < 9000
    other = journalled(to_plain(RunProgram("p" * 5000, CallTests("d" + "c" * 4999), task="t/1")))
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
    found = journalled(to_plain(RunProgram("", InputOutputTests(pairs), task="t/1")))
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
