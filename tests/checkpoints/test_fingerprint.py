"""Fingerprints follow the content, and known ones are used only where nothing can have changed."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_touchstone.checkpoints import fingerprint, resolve
from pytest_touchstone.checkpoints.builtin import SMOLLM2
from pytest_touchstone.checkpoints.fingerprint import FingerprintCache
from pytest_touchstone.core.errors import CheckpointError
from tests.support.fetched import needs_smollm2
from tests.support.lines import naming
from tests.support.pt_files import llama_pt
from tests.support.resolved import only
from tests.support.tiny import pickle_weights, split_weights


class Later(FingerprintCache):
    """A store whose clock is ten seconds ahead: no file is young. It is asked once per hashed checkpoint."""

    def __init__(self, folder: Path, most: int = 1000) -> None:
        super().__init__(folder, most)
        self.hashed = 0

    def clock(self) -> int:
        self.hashed += 1
        return time.time_ns() + 10_000_000_000


def change_a_byte(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    with path.open("r+b") as file:
        file.write(content)


def test_the_same_tensors_in_other_files_are_the_same(whole: Path, tmp_path: Path) -> None:
    for number, change in enumerate((split_weights, pickle_weights)):
        copy = Path(shutil.copytree(whole, tmp_path / str(number)))
        change(copy)
        assert fingerprint(only(copy)) == fingerprint(only(whole))


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"]
)
def test_one_changed_byte_is_another_checkpoint(whole: Path, folder: Path, name: str) -> None:
    path = folder / name
    if name.endswith(".safetensors"):
        change_a_byte(path)
    else:
        path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
    assert fingerprint(only(folder)) != fingerprint(only(whole))


def test_names_types_and_shapes_count(whole: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    found = {fingerprint(only(whole))}
    tensors = load_file(whole / "model.safetensors")
    name = "model.layers.0.self_attn.k_proj.weight"
    others = (
        {**tensors, name: tensors[name].reshape(32, 16)},
        {**tensors, name: tensors[name].view(torch.bfloat16)[:, ::2].contiguous()},
        {**{key: value for key, value in tensors.items() if key != name}, f"{name}2": tensors[name]},
    )
    for number, changed in enumerate(others):
        copy = Path(shutil.copytree(whole, tmp_path / str(number)))
        save_file(changed, copy / "model.safetensors", {"format": "pt"})
        found.add(fingerprint(only(copy)))
    assert len(found) == 4


def test_a_transposed_tensor_is_not_its_original(whole: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    found = set()
    tensors = load_file(whole / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    for number, tensor in enumerate((tensors[name], tensors[name].T, tensors[name].T.contiguous())):
        copy = Path(shutil.copytree(whole, tmp_path / str(number)))
        (copy / "model.safetensors").unlink()
        torch.save({**tensors, name: tensor}, copy / "pytorch_model.bin")
        found.add(fingerprint(only(copy)))
    assert len(found) == 3


def test_the_optimizers_state_does_not_count(whole: Path, tmp_path: Path) -> None:
    import torch

    shutil.copy(whole / "tokenizer.json", tmp_path)
    path = llama_pt(tmp_path / "checkpoint_best.pt")
    before = fingerprint(only(path))
    llama_pt(path, optimizer_state_dict={"state": {0: {"exp_avg": torch.ones(1000)}}}, epoch=4)
    assert fingerprint(only(path)) == before
    llama_pt(path, change=lambda state: state["norm.weight"].add_(1))
    assert fingerprint(only(path)) != before


def test_a_known_fingerprint_is_not_computed_again(folder: Path, tmp_path: Path) -> None:
    store = Later(tmp_path / "known")
    first = fingerprint(only(folder), store)
    assert store.hashed == 1
    assert fingerprint(only(folder), store) == first
    assert store.hashed == 1


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_file_overwritten_in_place_is_noticed(folder: Path, tmp_path: Path, keep_time: bool) -> None:
    store = Later(tmp_path / "known")
    path = folder / "model.safetensors"
    times = path.stat()
    first = fingerprint(only(folder), store)
    change_a_byte(path)
    if keep_time:  # as `cp -p` and rsync leave it: only ctime tells
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint(only(folder), store) != first


def test_a_change_within_the_same_tick_of_the_clock_is_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that counts in seconds a file can change without a trace right after it was read."""
    module: Any = importlib.import_module("pytest_touchstone.checkpoints.fingerprint")
    plain = module.stat_files
    monkeypatch.setattr(
        module,
        "stat_files",
        lambda files: [[*stamp[:4], *(at // 10**9 * 10**9 for at in stamp[4:])] for stamp in plain(files)],
    )
    store = FingerprintCache(tmp_path / "known")
    (folder / "model.safetensors").touch()
    found = []
    for _ in range(5):
        found.append(fingerprint(only(folder), store))
        change_a_byte(folder / "model.safetensors", at=-1 - len(found))
    assert len(set(found)) == 5


def test_a_file_that_is_replaced_by_another_of_its_size_and_time_is_noticed(
    folder: Path, tmp_path: Path
) -> None:
    store = Later(tmp_path / "known")
    path = folder / "model.safetensors"
    first = fingerprint(only(folder), store)
    times = path.stat()
    other = tmp_path / "other"
    shutil.copy(path, other)
    change_a_byte(other)
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)
    assert fingerprint(only(folder), store) != first


def test_a_new_file_of_the_tokenizer_is_noticed(folder: Path, tmp_path: Path) -> None:
    store = Later(tmp_path / "known")
    first = fingerprint(only(folder), store)
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert fingerprint(only(folder), store) != first


def test_a_checkpoint_that_is_being_written_is_not_taken_for_complete(folder: Path, tmp_path: Path) -> None:
    class Meanwhile(FingerprintCache):
        def clock(self) -> int:
            change_a_byte(folder / "model.safetensors")
            return super().clock()

    with pytest.raises(CheckpointError, match=naming(folder, "complete")):
        fingerprint(only(folder), Meanwhile(tmp_path / "known"))


@pytest.mark.parametrize("content", ["", "[]", '{"files": [], "fingerprint": 3}', "\x00"])
def test_a_broken_entry_is_as_none(folder: Path, tmp_path: Path, content: str) -> None:
    store = Later(tmp_path / "known")
    first = fingerprint(only(folder), store)
    (entry,) = (tmp_path / "known").glob("*.json")
    entry.write_text(content, encoding="utf-8")
    assert fingerprint(only(folder), store) == first


def test_a_cache_that_cannot_be_written_costs_only_time(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("a file in the way", encoding="utf-8")
    assert fingerprint(only(folder), Later(tmp_path / "known")) == fingerprint(only(folder))


def test_old_entries_go(folder: Path, tmp_path: Path) -> None:
    store = Later(tmp_path / "known", most=2)
    for number in range(4):
        fingerprint(only(Path(shutil.copytree(folder, tmp_path / f"copy-{number}"))), store)
    assert len(list((tmp_path / "known").glob("*.json"))) == 2


def adapter_of_numbers(folder: Path) -> Path:
    """An adapter that is the same on every machine."""
    folder.mkdir()
    module = "base_model.model.deberta.encoder.layer.0.attention.self.query_proj"
    numbers = np.arange(128, dtype=np.float32)
    halves = {"A": numbers.reshape(2, 64), "B": numbers.reshape(64, 2)}
    tensors = {f"{module}.lora_{half}.weight": one for half, one in halves.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    (base,) = resolve("builtin:ko-mlm-tiny/nouns/checkpoint-300", seq_len=None)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["query_proj"]}
    config["base_model_name_or_path"] = str(base.path)
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


KNOWN = {
    "builtin:ko-mlm-tiny": "5ea69937cecd6e6dda0c42b05119b32c7f916133259a3a7f6ad9960d2929e895",
    "builtin:mtp-tiny": "899b56809c418dc6d93cdc8b049d76585eec8311b5d02d723f0e69f7c873701c",
    "builtin:smollm2-135m": "a59822fd3ca620a15ecea63e4d774a2cbbd373c4173d9e6b19fc2f282643a587",
    "fake:causal": "6a1406a4e9864b0eb4497706908f7d153800830d55415f2c5547683c79cdabfd",
    "fake:masked": "358d53e118a3ec1a693f598aa6386457fe58fb912f5b41deb372493cf986db64",
    "adapter": "31d0977d8d6090f1ed6c8e887e089fdb28d2a07f661891c558ec6d781a5b716d",
}


@pytest.mark.parametrize(
    "source",
    [pytest.param(name, marks=needs_smollm2 if name == f"builtin:{SMOLLM2}" else ()) for name in KNOWN],
)
def test_fingerprints_stay_what_they_were(source: str, tmp_path: Path) -> None:
    """Saved results and baselines are found by them."""
    path = adapter_of_numbers(tmp_path / "adapter") if source == "adapter" else source
    assert fingerprint(only(path), FingerprintCache(tmp_path / "known")) == KNOWN[source]
