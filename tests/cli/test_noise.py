"""``touchstone noise`` asks a checkpoint again in other ways."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main, noise
from pytest_touchstone.results.run_directory import RunDirectory
from tests.support.places import ROOT


def options(checkpoint: str = "fake:causal", **more: Any) -> Namespace:
    return Namespace(checkpoint=checkpoint, **{"dtype": None, "also": [], **more})


def test_the_other_number_type_follows_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)

    def other(dtype: str | None, device: str) -> str:
        (found,) = (
            way.name for way in noise.ways(options(dtype=dtype), {"device_kind": device}) if not way.same
        )
        return found

    assert other(None, "cpu") == other("auto", "cpu") == other("float32", "cuda") == "bfloat16"
    assert other(None, "cuda") == other("bfloat16", "cpu") == "float32"


def test_engines_that_can_open_the_checkpoint_are_asked_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    (tmp_path / "config.json").write_text("{}")
    for path, found in ((tmp_path, f"vllm:{tmp_path}"), (Path("m.gguf"), "llama-server:m.gguf")):
        names = [way.name for way in noise.ways(options(str(path), also=["http://x/v1"]), {})]
        assert names[-2:] == ["http://x/v1", found]


def test_items_are_asked_in_the_opposite_order() -> None:
    items: list[Any] = ["a", "b", "c"]
    noise.pytest_collection_modifyitems(items)
    assert items == ["c", "b", "a"]


@pytest.mark.slow
def test_a_checkpoint_that_answers_by_a_rule_differs_in_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ("--data", str(ROOT / "fixtures" / "data"))
    assert main(["noise", "fake:causal", "--tasks", "arc_easy,drop", "--limit", "3", *data, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 8
    assert {(row["items"], row["flips"], row["change"]) for row in told["rows"]} == {(3, 0, 0.0)}
    assert {row["largest"] for row in told["rows"] if row["benchmark"] == "arc_easy"} == {0.0}
    assert {row["same_texts"] for row in told["rows"] if row["benchmark"] == "drop"} == {3}
    assert Path(told["saved"]).is_file()
    runs = sorted((tmp_path / "results" / "noise").glob("2*"))
    orders = [[one.example for one in RunDirectory(run).read_collected()[0]] for run in runs]
    assert [order == orders[0] for order in orders] == [True, True, True, False, True]
    assert orders[3] == orders[0][::-1]
    assert main(["list"]) == 0
    assert "no runs" in capsys.readouterr().out


def test_a_checkpoint_that_is_not_there_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["noise", "nowhere", "--tasks", "arc_easy"]) == 4
    assert "touchstone: " in capsys.readouterr().err
