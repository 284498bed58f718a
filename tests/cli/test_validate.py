"""``touchstone validate`` names every fault of a file, and shows what a right one enables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main

SEED = {
    "benchmarks": {
        "arc": {"enabled": True, "description": "", "tasks": ["arc_easy", "arc_challenge"]},
        "math": {"enabled": True, "description": "", "tasks": ["gsm8k"]},
        "language": {"enabled": False, "description": "", "tasks": ["lambada_openai"]},
    },
    "tasks": {
        "arc_easy": {
            "enabled": True,
            "tasks": ["arc_easy"],
            "num_fewshot": 25,
            "batch_size": 8,
            "limit": None,
        },
        "arc_challenge": {"enabled": False, "tasks": ["arc_challenge"], "num_fewshot": 25},
        "gsm8k": {"limit": 4, "metrics": ["exact_match"], "timeout": 60},
    },
}


def file_of(tmp_path: Path, told: Any) -> str:
    path = tmp_path / "eval_config.json"
    path.write_text(json.dumps(told))
    return str(path)


def test_what_a_file_enables_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = file_of(tmp_path, SEED)
    assert main(["validate", path]) == 0
    out = capsys.readouterr().out
    assert "is valid; it enables 2 benchmarks" in out
    assert "tasks.arc_challenge: enabled is false" in out
    assert max(map(len, out.splitlines()[2:])) <= 80
    assert main(["benchmarks", "--config", path, "--json"]) == 0
    rows = {row["benchmark"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: (row["shots"], row["limit"]) for name, row in rows.items()} == {
        "arc_easy": (25, "all"),
        "gsm8k": (5, 4),
    }


def test_every_fault_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, {"tasks": {"gsm8k": {"limit": -1, "metric": []}, "arc_easy": {"priority": 1}}})
    assert main(["validate", path]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{path}: tasks.") or "eval_config.json: tasks." in line for line in lines)
    path = file_of(tmp_path, {"tasks": {"gsm8k": {}, "arc_eazy": {}, "hellaswag": {"metrics": ["bleu"]}}})
    assert main(["validate", path]) == 4
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("tasks.arc_eazy: 'arc_eazy': no such benchmark or tag; did you mean arc_easy?")
    assert "hellaswag has no metric 'bleu'" in second


def test_entries_that_are_not_enabled_are_checked_and_only_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = {"arc_eazy": {"enabled": False}, "hellaswag": {"enabled": False, "metrics": ["bleu"]}}
    path = file_of(tmp_path, {"tasks": {"gsm8k": {}, **off}})
    assert main(["validate", path, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["notes"]
    assert first.startswith("not enabled, so no mistake yet: ")
    assert "'arc_eazy': no such benchmark or tag; did you mean arc_easy?" in first
    assert "hellaswag has no metric 'bleu'" in second
    path = file_of(
        tmp_path, {"benchmarks": {"a": {"tasks": ["gsm8k"]}}, "tasks": {"x": {"tasks": ["nope_at_all"]}}}
    )
    assert main(["validate", path, "--json"]) == 0
    assert "nope_at_all" in " ".join(json.loads(capsys.readouterr().out)["notes"])
