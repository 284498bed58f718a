"""Checkpoints as training scripts save them: ``.pt`` files and trainer folders, read without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint, format_of, resolve
from pytest_touchstone.checkpoints.config_files import step_of_row
from tests.support.places import ROOT
from tests.support.pt_files import SIZES, llama_pt, state_dict
from tests.support.resolved import only
from tests.support.tiny import tiny_causal, trainer_state


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.", "transformer.", "adapter.transformer."])
def test_wrappers_prefixes_do_not_matter(place: Path, prefix: str) -> None:
    assert only(llama_pt(place / "x.pt", prefix=prefix)).weights.params["n_future_tokens"] == 4


def test_sizes_and_tokenizer_are_found_where_the_training_had_its_model(place: Path, tmp_path: Path) -> None:
    model = tmp_path / "models" / "7B"
    model.mkdir(parents=True)
    hub_names = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 5,
        "max_position_embeddings": 32,
    }
    (model / "config.json").write_text(json.dumps(hub_names), encoding="utf-8")
    (place / "tokenizer.json").rename(model / "tokenizer.json")
    (tmp_path / "storage").mkdir()
    path = llama_pt(tmp_path / "storage" / "checkpoint_epoch_2.pt", config={"model": {"path": str(model)}})
    info = only(path)
    assert (info.tokenizer, info.seq_len) == (model, 32)
    assert {key: info.weights.params[key] for key in ("dim", "n_heads", "n_layers")} == {
        "dim": 16,
        "n_heads": 2,
        "n_layers": 5,
    }
    moved = llama_pt(tmp_path / "storage" / "moved.pt", config={"model": {"path": "gone"}})
    assert only(moved, base_model=str(model)).tokenizer == model


def test_a_folder_with_params_json_is_a_plain_llama(place: Path) -> None:
    import torch

    torch.save(state_dict(heads=1, layers=5), place / "consolidated.00.pth")
    (place / "params.json").write_text(json.dumps(SIZES), encoding="utf-8")
    info = only(place)
    assert (info.format, info.path.name, info.weights.params["n_future_tokens"]) == (
        "mtp",
        "consolidated.00.pth",
        1,
    )
    assert info.name == place.name
    assert "1 prediction head" in info.architecture


def test_epochs_of_a_glob_are_in_order(place: Path) -> None:
    for epoch in (10, 2, 1):
        llama_pt(place / f"checkpoint_epoch_{epoch}.pt", epoch=epoch)
    infos = resolve(str(place / "checkpoint_epoch_*.pt"), seq_len=None)
    assert [info.training.epoch for info in infos] == [1, 2, 10]


def test_the_optimizers_state_is_not_read(place: Path) -> None:
    import torch

    large = {
        "state": {0: {"exp_avg": torch.zeros(8_000_000), "step": torch.tensor(3.0)}},
        "param_groups": [{"lr": 1}],
    }
    path = llama_pt(place / "checkpoint_best.pt", optimizer_state_dict=large)
    tracemalloc.start()
    info = only(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert info.weights.parameters == sum(tensor.numel() for tensor in state_dict().values())


def test_a_pt_file_is_recognised_without_torch(place: Path) -> None:
    path = llama_pt(place / "checkpoint_best.pt")
    code = (
        "import sys; from pytest_touchstone.cli import main; main(['show', sys.argv[1]]);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, cwd=ROOT).returncode == 0


def test_a_trainer_folder_tells_its_last_validation_loss(whole: Path, tmp_path: Path) -> None:
    folder = trainer_state(Path(shutil.copytree(whole, tmp_path / "c")), global_step=20, epoch=2.0)
    path = folder / "trainer_state.json"
    log = [{"step": 10, "eval_loss": 3.0}, {"step": 20, "loss": 2.0}, {"step": 20, "eval_loss": 2.5}]
    state = {**json.loads(path.read_text(encoding="utf-8")), "log_history": log, "max_steps": 100}
    path.write_text(json.dumps(state), encoding="utf-8")
    assert (only(folder).training.val_loss, only(folder).training.settings["max_steps"]) == (2.5, 100)


def test_a_pickle_that_names_one_thing_many_times_is_cut_short(place: Path) -> None:
    """Nine times nine ... a few bytes of a pickle that would be gigabytes of text."""
    bomb: Any = "x" * 100
    for _ in range(12):
        bomb = [bomb] * 9
    info = only(llama_pt(place / "x.pt", train_metrics={"bomb": bomb}))
    assert len(json.dumps(info.training.settings)) < 500_000


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two steps of transformers' Trainer leave of a model and of an adapter, with the state of all it has."""
    folder = tmp_path_factory.mktemp("trained")
    tiny_causal(folder / "base")
    found = subprocess.run(
        [sys.executable, "-c", TRAINING, str(folder)], check=False, cwd=ROOT, capture_output=True
    )
    assert found.returncode == 0, found.stderr.decode()
    return folder


TRAINING = """
import sys
from pathlib import Path
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
base = Path(sys.argv[1]) / "base"
rows = [{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}] * 4
for name in ("whole", "lora"):
    model = AutoModelForCausalLM.from_pretrained(base)
    model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])) if name == "lora" else model
    settings = TrainingArguments(
        str(base.parent / name), max_steps=2, save_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to=[]
    )
    tokenizer = AutoTokenizer.from_pretrained(base)
    Trainer(model, settings, train_dataset=rows, processing_class=tokenizer).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "lora"])
def test_a_trainers_states_are_neither_read_nor_part_of_the_fingerprint(kind: str, trained: Path) -> None:
    infos = resolve(str(trained / kind), seq_len=None)
    assert [(info.name, info.training.global_step) for info in infos] == [
        ("checkpoint-1", 1),
        ("checkpoint-2", 2),
    ]
    states = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin")
    for info in infos:
        before = fingerprint(info)
        assert all((info.path / name).is_file() for name in states)
        assert not {path.name for path in format_of(info).files(info)} & set(states)
        for name in states:
            (info.path / name).write_bytes(b"not a pickle")
        again = only(info.path)
        assert (fingerprint(again), again.weights.parameters) == (before, info.weights.parameters)


@pytest.mark.slow
def test_a_trainers_weights_may_be_a_pickle(trained: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    before = only(trained / "whole" / "checkpoint-2")
    folder = Path(shutil.copytree(before.path, tmp_path / "checkpoint-2"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    after = only(folder)
    assert (fingerprint(after), after.weights.parameters) == (fingerprint(before), before.weights.parameters)


@pytest.mark.parametrize(
    ("row", "step"),
    [
        ({"global_step": 300, "step": 300, "name": "checkpoint-300"}, 300),
        ({"global_step": None, "step": 2, "name": "gpt2"}, None),
        ({"global_step": None, "step": 1.5, "epoch": 1.5}, None),
        ({"step": 390, "series": "mlm_v2"}, 390),
        ({}, None),
    ],
)
def test_the_step_is_what_the_trainer_or_the_table_says(row: dict[str, Any], step: int | None) -> None:
    assert step_of_row(row) == step
