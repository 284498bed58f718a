"""``touchstone conformance``: another scorer's verdicts against the recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.rescore import cases, scorers
from tests.support.rows import write_jsonl


def verdicts(path: Path, scorer: str, **changed: Any) -> Path:
    rows = [{"scorer": scorer, **case} for case in cases(scorer)]
    rows[0] |= changed
    return write_jsonl(path, rows)


@pytest.mark.parametrize("scorer", scorers())
def test_the_recorded_verdicts_agree_with_themselves(
    scorer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", str(verdicts(tmp_path / "v.jsonl", scorer))]) == 0
    assert f"{len(cases(scorer))} verdicts compared, 0 different; 0 cases" in capsys.readouterr().out


def test_a_difference_is_shown_and_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = cases("gsm8k_strict")[0]
    file = verdicts(tmp_path / "v.jsonl", "gsm8k_strict", verdict=not first["verdict"])
    assert main(["conformance", str(file)]) == 1
    said = capsys.readouterr().out
    assert first["why"] in said
    assert "1 different" in said


def test_the_cases_come_without_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--cases", "drop_f1"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(cases("drop_f1"))
    assert set(rows[0]) == {"scorer", "gold", "output"}


def test_without_a_file_the_scorers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance"]) == 0
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
    assert main(["conformance", str(tmp_path / "v.jsonl")]) == 4
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
