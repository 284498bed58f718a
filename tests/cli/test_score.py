"""``touchstone score``: files of anybody's answers become runs; and runs are found and scored again, wherever made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.score import cases, scorers
from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record
from tests.support.installed import touchstone
from tests.support.lines import missing
from tests.support.places import ROOT
from tests.support.rows import write_jsonl

QUICK = ("--checkpoint", "fake:causal", "--eval-limit", "1", "-p", "no:cacheprovider", "-q")


def rescored(run: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was not scored again."""
    assert main(["score", str(run), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["items"] > 0
    return [why for _, why in found["unscored"]]


def test_a_run_of_shipped_benchmarks_in_any_folder_is_rescored_from_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(ROOT / "fixtures" / "data")
    done = touchstone("run", *QUICK, "--tasks", "arc_easy,gsm8k", "--eval-data", "data", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "results").glob("2*")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert rescored(run, capsys) == []
    assert main(["export", str(run)]) == 0
    assert "without the row" not in capsys.readouterr().out
    # As on another machine, where the benchmarks that ship with the package are elsewhere.
    collected = json.loads((run / "details" / "collected.json").read_text())
    for one in collected["declarations"].values():
        one["file"] = f"/nowhere{one['file']}"
    (run / "details" / "collected.json").write_text(json.dumps(collected))
    assert rescored(run, capsys) == []


def test_shards_that_were_merged_are_rescored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        shard = ("--eval-shard", f"{number}/2", "--eval-limit", "2")
        done = touchstone("run", *QUICK, "--tasks", "arc_easy", *shard, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    merged = tmp_path / "merged"
    assert main(["merge", str(tmp_path / "results"), "-o", str(merged)]) == 0
    capsys.readouterr()
    assert rescored(merged, capsys) == []


def test_a_benchmark_outside_the_root_folder_is_found_with_its_own_number_of_shots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("own", "root"):
        (tmp_path / folder).mkdir()
    file = "test_lm_eval.py"  # the name of a shipped file, which this one is not
    (tmp_path / "own" / file).write_text(
        "from pytest_touchstone import Loglikelihood, Shots, benchmark\n\n\n"
        'ROWS = [{"q": "a"}, {"q": "b"}, {"q": "c"}]\n\n\n'
        '@benchmark("mine", version=1, rows=ROWS, asks=Loglikelihood, primary="acc",\n'
        '           shots=Shots(shot=lambda row: row["q"]))\n'
        "def test_mine(example, fewshot):\n"
        '    yield Loglikelihood(fewshot.text + example["q"], " b")\n'
        '    return {"acc": 1.0}\n'
    )
    (tmp_path / "asked.json").write_text('{"tasks": {"mine": {"num_fewshot": 2}}}')
    given = (f"own/{file}", "--rootdir", "root", "--eval-config", "asked.json")
    done = touchstone("run", *given, *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "results").glob("2*")
    assert rescored(run, capsys) == []


def verdicts(path: Path, scorer: str, **changed: Any) -> Path:
    rows = [{"scorer": scorer, **case} for case in cases(scorer)]
    rows[0] |= changed
    return write_jsonl(path, rows)


@pytest.mark.parametrize("scorer", scorers())
def test_the_recorded_verdicts_agree_with_themselves(
    scorer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--verdicts", str(verdicts(tmp_path / "v.jsonl", scorer))]) == 0
    text = capsys.readouterr().out
    assert not missing(text, f"{len(cases(scorer))} verdicts compared", "0 different", "0 cases")


def test_a_difference_is_shown_and_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = cases("gsm8k_strict")[0]
    file = verdicts(tmp_path / "v.jsonl", "gsm8k_strict", verdict=not first["verdict"])
    assert main(["score", "--verdicts", str(file)]) == 1
    said = capsys.readouterr().out
    assert first["why"] in said
    assert "1 different" in said


def test_the_cases_come_without_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--cases", "drop_f1"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(cases("drop_f1"))
    assert set(rows[0]) == {"scorer", "gold", "output"}


def test_without_a_file_the_scorers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--verdicts"]) == 0
    assert all(name in capsys.readouterr().out for name in ["math_verify"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"scorer": "gsm8k_strict"}', "'gold' is missing"),
        ('{"scorer": "nope", "gold": "", "output": "", "verdict": true}', "no scorer 'nope'"),
        ('{"scorer": "gsm8k_strict", "gold": "", "output": "", "verdict": "yes"}', "neither true, false"),
        ('{"scorer": "gsm8k_strict", "gold": "", "output": "", "verdict": true}', "no such case"),
    ],
)
def test_what_is_no_verdict_is_one_line(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v.jsonl").write_text(line + "\n", encoding="utf-8")
    assert main(["score", "--verdicts", str(tmp_path / "v.jsonl")]) == 4
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


# Files of answers

OWN = """
from pytest_touchstone import Generate, Graded, benchmark

ROWS = [{"question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(4)]


@benchmark("sums", version=1, rows=ROWS, asks=Generate, primary="acc", metrics=("acc",))
def test_sums(example):
    answer = yield Generate(f"Q: {example['question']} A:", stop=["Q:"], max_new_tokens=9)
    text = answer.text.strip()
    return Graded({"acc": float(text == example["answer"])}, no_answer=not text, extracted={"acc": text})
"""


def records(folder: Path) -> dict[str, Record]:
    """The records of the newest run by example."""
    newest = max(folder.glob("results/2*"), key=lambda path: path.stat().st_mtime)
    return {record.example: record for record in latest_records(read_journal(newest)).values()}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a benchmark of one's own."""
    (tmp_path / "test_sums.py").write_text(OWN)
    return tmp_path


def scored(folder: Path, *words: str, code: int = 0) -> str:
    done = touchstone("score", *words, "-p", "no:cacheprovider", cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_answers_to_a_benchmark_of_ones_own_are_an_ordinary_run(own: Path) -> None:
    rows = [
        {"prompt": "Please: What is 1 and 1?", "response": " 2 Q: What is 2?", "correct": False},
        {"prompt": "Please: What is 3 and 3?", "response": "5"},
        {"prompt": "Please: What is 9 and 9?", "response": "18"},
    ]
    write_jsonl(own / "theirs.jsonl", rows)
    told = " ".join(scored(own, "test_sums.py", "theirs.jsonl").split())
    assert "2 of its 3 rows answer sums (2 by question); 1 match no row: row 3" in told
    found = records(own)
    assert {name: record.scores["acc"] for name, record in found.items()} == {"sums/1": 1.0, "sums/3": 0.0}
    (exchange,) = found["sums/1"].exchanges
    assert exchange["answer"]["samples"][0]["text"] == " 2 "  # up to the benchmark's own stop
    assert exchange["answer"]["provenance"]["verdicts"] == {"correct": 0.0}
    assert exchange["answer"]["provenance"]["prompt"] == "Please: What is 1 and 1?"
    (saved,) = (own / "results" / "saved").glob("*/sums@*[0-9a-f].json")
    conditions = json.loads(saved.read_text())["conditions"]
    assert (conditions["shots"], conditions["template"]) == ("not known", "not known")
    assert conditions["answers"] == "JSON lines (not known)"
    assert touchstone("score", "last", "--format", "json", cwd=own).returncode == 0


def test_a_row_with_the_selected_question_among_its_examples_answers_its_own(own: Path) -> None:
    rows = [
        {"prompt": f"Q: What is 0 and 0? A: 0 Q: What is {n} and {n}?", "response": str(2 * n)}
        for n in (1, 3)
    ]
    rows.append({"prompt": "What is 0 and 0?", "response": "0"})
    write_jsonl(own / "theirs.jsonl", rows)
    told = " ".join(scored(own, "test_sums.py", "theirs.jsonl", "--eval-limit", "2").split())
    assert "3 of its 3 rows answer sums (3 by question); 2 of them" in told
    assert {name: record.scores["acc"] for name, record in records(own).items()} == {
        "sums/0": 1.0,
        "sums/1": 1.0,
    }
    assert "0 of them" in scored(own, "test_sums.py", "theirs.jsonl", "-k", "sums/2", code=4)


def test_rows_in_order_answer_the_selected_items(own: Path) -> None:
    write_jsonl(own / "theirs.jsonl", [{"response": str(2 * n)} for n in range(4)])
    scored(own, "test_sums.py", "theirs.jsonl", "-k", "sums/2 or sums/3")
    assert {name: record.scores["acc"] for name, record in records(own).items()} == {
        "sums/2": 1.0,
        "sums/3": 1.0,
    }


def test_samples_of_a_row_are_scored_together(own: Path) -> None:
    rows = [{"responses": [str(2 * n), "x", str(2 * n)]} for n in range(4)]
    write_jsonl(own / "theirs.jsonl", rows)
    scored(own, "test_sums.py", "theirs.jsonl")
    scores = records(own)["sums/2"].scores
    assert [scores["maj@3"], scores["avg@3"]] == pytest.approx([1.0, 2 / 3])


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ([{"id": "x", "response": "1"}], (), "none of its 1 rows answers sums: not by prompt"),
        ([{"id": "x", "response": "1"}], ("--answer", "text"), "has no field 'text'"),
        ([{"id": "x"}], (), "no field that could be its answer"),
        (
            [{"task_id": "x", "arguments": [["a", "b"]], "resps": [[[-1.0, True]]]}],
            (),
            "has log-likelihoods alone",
        ),
    ],
)
def test_a_file_that_answers_nothing_is_refused_before_anything_runs(
    own: Path, rows: list[dict[str, Any]], words: tuple[str, ...], said: str
) -> None:
    write_jsonl(own / "theirs.jsonl", rows)
    assert said in scored(own, "test_sums.py", "theirs.jsonl", *words, code=4)
    assert not (own / "results").exists()


def test_samples_of_lm_eval_have_the_scores_of_the_run_that_they_were_exported_from(tmp_path: Path) -> None:
    tasks = ("arc_easy", "gsm8k")
    done = touchstone(
        "run", *QUICK[:2], "--eval-limit", "4", *QUICK[4:], "--tasks", ",".join(tasks), cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "results").glob("2*")
    before = records(tmp_path)
    assert touchstone("export", str(run), "-o", "exported", cwd=tmp_path).returncode == 0
    for task in tasks:
        (file,) = (tmp_path / "exported").glob(f"*/samples_{task}_*.jsonl")
        (tmp_path / task).mkdir()  # such as a folder of its data
        scored(tmp_path, task, str(file))
        after = records(tmp_path)
        assert len(after) == 4
        for example, record in after.items():
            assert record.scores.items() <= before[example].scores.items()
            assert before[example].scores.keys() - record.scores.keys() <= {"acc_tokens"}


def test_programs_are_run_as_they_are(tmp_path: Path) -> None:
    rows = [
        {"task_id": "HumanEval/0", "completion": "    return False\n"},
        {"task_id": "HumanEval/53", "solution": "def add(x, y):\n    return x + y\n"},
    ]
    write_jsonl(tmp_path / "samples.jsonl", rows)
    scored(tmp_path, "humaneval", "samples.jsonl")
    assert {name: record.scores["pass@1"] for name, record in records(tmp_path).items()} == {
        "humaneval/0": 0.0,
        "humaneval/53": 1.0,
    }
