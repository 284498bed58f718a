"""``touchstone rescore`` and ``touchstone export`` find the benchmarks of a run, wherever it was made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.installed import touchstone
from tests.support.places import ROOT

QUICK = ("--checkpoint", "fake:causal", "--eval-limit", "1", "-p", "no:cacheprovider", "-q")


def rescored(run: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was not scored again."""
    assert main(["rescore", str(run), "--json"]) == 0
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
    assert main(["export", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["without_row"] == 0
    # As on another machine, where the benchmarks that ship with the package are elsewhere.
    collected = json.loads((run / "collected.json").read_text())
    for one in collected["declarations"].values():
        one["file"] = f"/nowhere{one['file']}"
    (run / "collected.json").write_text(json.dumps(collected))
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
        "from pytest_touchstone import Loglikelihood, benchmark\n\n\n"
        'ROWS = [{"q": "a"}, {"q": "b"}, {"q": "c"}]\n\n\n'
        '@benchmark("mine", version=1, rows=ROWS, asks=Loglikelihood, primary="acc", shot=lambda row: row["q"])\n'
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
