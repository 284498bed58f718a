"""--eval-dry-run shows what would be asked, and scores nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.plugin import planned
from pytest_touchstone.reports.plan import DryRun, DryRunRow, SettingRow, render_dry_run
from tests.support.lines import missing
from tests.support.model_server import Style, serving

Project = Any


def test_nothing_is_scored_and_every_given_setting_has_its_origin(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOUCHSTONE_SEED", "7")
    monkeypatch.setattr(planned, "is_shipped", lambda _: True)
    (project.path / "pyproject.toml").write_text("[tool.touchstone]\nshots = 2\n[tool.pytest.ini_options]\n")
    result = project.run("--eval-dry-run", "--eval-limit", "3")
    assert result.ret == 0
    lines = [" ".join(line.split()) for line in result.stdout.lines]
    assert any(line.startswith("sums 3 2 6 ~") for line in lines)
    for line in ("--eval-seed 7 TOUCHSTONE_SEED", "--eval-shots 2 pyproject.toml", "--eval-limit 3 option"):
        assert line in lines
    assert not any(line.endswith(" default") or "--eval-dry-run" in line for line in lines)
    assert "scored nothing" in lines
    assert not project.runs


@pytest.mark.parametrize("style", ["vllm", "openai"])
def test_a_served_model_is_asked_nothing_but_its_probe(project: Project, whole: Path, style: Style) -> None:
    with serving(whole, style=style) as server:
        result = project.run("--eval-dry-run", "--eval-limit", "3", checkpoint=server.url)
        probed = len(server.bodies)
        project.run("--co", checkpoint=server.url)
        assert len(server.bodies) == 2 * probed
    assert result.ret == (0 if style == "vllm" else 5)
    lines = [" ".join(line.split()) for line in result.stdout.lines]
    assert "scored nothing" in lines
    assert style == "vllm" or any(line.startswith("left out sums: asks Loglikelihood") for line in lines)
    assert not project.runs


@pytest.mark.parametrize(("sampled", "together"), [(3, "together 8 64 ~500 0"), (2, "together 8 ~64 ~500 0")])
def test_a_sum_is_marked_where_a_part_of_it_is_estimated(sampled: int, together: str) -> None:
    rows = [
        DryRunRow(checkpoint="m", benchmark="a", items=5, sampled=5, requests=40, prompt_tokens=300, new_tokens=0),
        DryRunRow(checkpoint="m", benchmark="b", items=3, sampled=sampled, requests=24, prompt_tokens=200,
                  new_tokens=0),
    ]  # fmt: skip
    lines = render_dry_run(DryRun(rows, [], [], []), width=100, color=False).splitlines()
    assert together in [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("width", [80, 100])
def test_costs_and_what_cannot_be_asked_are_told_within_the_width(width: int) -> None:
    rows = [
        DryRunRow(checkpoint="m", benchmark="gsm8k", items=1319, shots=5, requests=1319, prompt_tokens=1_200_000,
                  new_tokens=337_664, cost=0.5, exact=True, sampled=640, takes=2048,
                  too_long=("gsm8k/1", "gsm8k/5", "gsm8k/6", "gsm8k/8")),
        DryRunRow(checkpoint="m", benchmark="mine", items=5, shots=0),
    ]  # fmt: skip
    settings = [
        SettingRow("--eval-tasks", ("gsm8k", "mine"), "option"),
        SettingRow("--eval-limit of gsm8k", 12, "eval.json"),
    ]
    told = DryRun(rows, ["hellaswag: no"], settings, ["m: no echo: old"])
    lines = render_dry_run(told, width=width, color=False).splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for part in (
        "gsm8k 1,319 5 ~1,319 1,200,000 337,664",
        "mine 5 0 - - -",
        "cost at most 0.5 by --eval-set price",
        "cannot m: no echo: old",
        "too long gsm8k: 4 of 640 sampled items, for 2,048 tokens (contexts are cut on their left): "
        "gsm8k/1, gsm8k/5, gsm8k/6 and 1 more",
        "left out hellaswag: no",
        "--eval-tasks gsm8k, mine option",
        "--eval-limit of gsm8k 12 eval.json",
    ):
        assert part in text


def test_items_that_are_too_long_are_counted_and_named(
    project: Project, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned, "is_shipped", lambda _: True)
    project.write()
    path = project.path / "data" / "sums" / "test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[3:5]:
        row["q"] = "1+1= " * 2000
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "too long sums: 2 of 20 items, for "
    result = project.run("--eval-dry-run", checkpoint=str(whole))
    assert said in words(result)
    assert not missing(words(result), "cut on their left", "sums/3, sums/4")
    with serving(whole, style="vllm") as server:
        result = project.run("--eval-dry-run", checkpoint=server.url)
    assert said in words(result)
    assert not missing(words(result), "(not asked: errors)", "sums/3, sums/4")


def words(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


TEXTS = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="says", version=1, data="sums/test", asks=Generate, primary="acc")
def test_says(example):
    answer = yield Generate(example["q"], max_new_tokens=4)
    return {"acc": "5" in answer.text}
"""


def test_each_sample_is_a_request_and_what_a_file_says_of_a_benchmark_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned, "is_shipped", lambda _: True)
    (project.path / "test_sums.py").write_text(TEXTS)
    tasks = {"says": {"enabled": True, "tasks": ["says"], "limit": 12}}
    (project.path / "eval.json").write_text(json.dumps({"tasks": tasks}))
    result = project.run("--eval-dry-run", "--eval-config", "eval.json", "--eval-samples", "4")
    lines = [" ".join(line.split()) for line in result.stdout.lines]
    assert any(line.startswith("says 12 0 48 ") for line in lines)
    assert "--eval-limit of says 12 eval.json" in lines
