"""``touchstone checkpoint show``: the rows and the text about a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from tests.support.model_server import serving
from tests.support.places import ROOT
from tests.support.pt_files import llama_pt, state_dict
from tests.support.tiny import tiny_adapter


def shown(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> dict[str, Any]:
    assert main(["checkpoint", "show", str(path), "--format", "json", *options]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert isinstance(row, dict)
    return row


def test_a_pt_file_tells_what_its_training_wrote_into_it(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = llama_pt(place / "checkpoint_best.pt")
    row = shown(capsys, path)
    assert (row["name"], row["kind"], row["format"], row["model_type"]) == (
        "checkpoint_best",
        "causal",
        "mtp",
        "mtp",
    )
    assert row["parameters"] == sum(tensor.numel() for tensor in state_dict().values())
    assert (row["dtype"], row["epoch"], row["val_loss"], row["seq_len"]) == ("float32", 3.0, 1.5, 64)
    assert row["params"]["n_future_tokens"] == 4
    assert row["training"]["config"]["training"] == {"lr": 1e-4, "batch_size": 8}
    assert row["training"]["train_metrics"] == {"train_loss": 1.75}
    assert {"humaneval", "mbpp", "gsm8k", "lambada"} <= set(row["benchmarks"])
    assert "real_coref" not in row["benchmarks"]
    assert main(["checkpoint", "show", str(path)]) == 0
    text = capsys.readouterr().out
    for line in ("val_loss           1.5", " config.training.lr = 0.0001", "n_future_tokens 4"):
        assert line in text


def test_an_adapter_is_shown_with_its_base(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = tiny_adapter(tmp_path / "lora", whole)
    row = shown(capsys, adapter)
    assert (row["format"], row["base"]["name"]) == ("adapter", "checkpoint-7")
    assert shown(capsys, adapter, "--base-model", str(whole))["fingerprint"] == row["fingerprint"]
    assert main(["checkpoint", "show", str(adapter)]) == 0
    assert f"base               {whole} (LlamaForCausalLM)" in capsys.readouterr().out


def test_a_length_that_a_server_has_not_said_is_not_shown(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(whole, style="openai") as server:
        assert main(["checkpoint", "show", server.url, "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["seq_len"], row["served"]["limit"]) == (None, None)
    with serving(whole, style="openai", limit=96) as server:
        assert main(["checkpoint", "show", server.url]) == 0
        assert "2048" not in capsys.readouterr().out
