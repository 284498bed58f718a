"""``touchstone score`` and ``touchstone export`` find the benchmarks of a run, wherever it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.score import cases, scorers
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
    (tmp_path / "own" / "test_mine.py").write_text(
        "from pytest_touchstone import Loglikelihood, Shots, benchmark\n\n\n"
        'ROWS = [{"q": "a"}, {"q": "b"}, {"q": "c"}]\n\n\n'
        '@benchmark("mine", version=1, rows=ROWS, asks=Loglikelihood, primary="acc",\n'
        '           shots=Shots(shot=lambda row: row["q"]))\n'
        "def test_mine(example, fewshot):\n"
        '    yield Loglikelihood(fewshot.text + example["q"], " b")\n'
        '    return {"acc": 1.0}\n'
    )
    (tmp_path / "asked.json").write_text('{"tasks": {"mine": {"num_fewshot": 2}}}')
    given = ("own/test_mine.py", "--rootdir", "root", "--eval-config", "asked.json")
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
