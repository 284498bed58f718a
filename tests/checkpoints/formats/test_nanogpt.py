"""Files of nanoGPT, and what only looks like one."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint
from pytest_touchstone.core.errors import CheckpointError
from tests.support.nanogpt_files import ARGS, random_state, save_characters, save_nanogpt
from tests.support.resolved import only

CHARACTERS = "\n abcdefg"
SMALL = {**ARGS, "vocab_size": len(CHARACTERS)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_characters(tmp_path / "out", CHARACTERS)
    return save_nanogpt(tmp_path / "out" / "ckpt.pt", random_state(SMALL), SMALL)


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        only(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_tells_its_sizes_and_its_step(path: Path) -> None:
    info = only(path)
    assert (info.format, info.kind, info.seq_len, info.global_step) == ("nanogpt", "causal", 64, 250)
    state = random_state(SMALL)
    del state["lm_head.weight"]
    assert info.parameters == sum(tensor.numel() for tensor in state.values())
    assert info.training["config"]["learning_rate"] == 1e-3


def test_the_optimizer_and_the_wrappers_names_do_not_matter_for_the_fingerprint(path: Path) -> None:
    before = fingerprint(only(path))
    wrapped = {f"_orig_mod.{name}": tensor for name, tensor in random_state(SMALL).items()}
    save_nanogpt(path, wrapped, SMALL, optimizer={}, iter_num=500)
    assert fingerprint(only(path)) == before
    save_characters(path.parent, CHARACTERS[::-1])
    assert fingerprint(only(path)) != before


def test_masks_of_older_versions_are_left_out(path: Path) -> None:
    import torch

    before = fingerprint(only(path))
    masks = {f"transformer.h.{layer}.attn.bias": torch.ones(1, 1, 64, 64) for layer in range(2)}
    save_nanogpt(path, random_state(SMALL) | masks, SMALL)
    assert fingerprint(only(path)) == before


def test_the_vocabulary_is_found_where_nanogpt_has_the_data(path: Path, tmp_path: Path) -> None:
    (path.parent / "meta.pkl").unlink()
    assert "--eval-base-model" in refusal(path)
    data = save_characters(tmp_path / "data" / "shakespeare_char", CHARACTERS)
    assert only(path).tokenizer == data
    elsewhere = save_characters(tmp_path / "elsewhere", CHARACTERS)
    assert only(path, base_model=str(elsewhere)).tokenizer == elsewhere


def test_a_dataset_that_is_a_path_out_of_the_data_is_not_followed(path: Path, tmp_path: Path) -> None:
    save_characters(tmp_path / "secret", CHARACTERS)
    (path.parent / "meta.pkl").unlink()
    save_nanogpt(path, random_state(SMALL), SMALL, config={"dataset": "../secret"})
    assert "no tokenizer beside it" in refusal(path)


def test_a_vocabulary_that_runs_code_is_refused_and_runs_nothing(path: Path, tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (path.parent / "meta.pkl").write_bytes(pickle.dumps({"stoi": Payload()}))
    assert "system" in refusal(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "meta",
    [
        [],
        {},
        {"stoi": {}},
        {"stoi": {"ab": 0}},
        {"stoi": {"a": 1}},
        {"stoi": {"a": 0, "b": 0}},
        {"stoi": {"a": []}},
    ],
)
def test_what_is_no_vocabulary_is_refused(meta: Any, path: Path) -> None:
    (path.parent / "meta.pkl").write_bytes(pickle.dumps(meta))
    assert "no vocabulary of characters" in refusal(path)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"n_layer": 10**15}, "n_layer"),
        ({"n_layer": 3}, "transformer.h.2"),
        ({"n_layer": 1}, "has no place"),
        ({"n_embd": 64}, "another model"),
        ({"n_head": 5}, "no multiple"),
        ({"n_head": 0}, "n_head"),
        ({"block_size": 128}, "wpe"),
        ({"block_size": "x"}, "block_size"),
        ({"block_size": None}, "block_size"),
    ],
)
def test_sizes_that_do_not_fit_the_tensors_are_refused(args: dict[str, Any], said: str, path: Path) -> None:
    save_nanogpt(path, random_state(SMALL), {**SMALL, **args})
    assert said in refusal(path)


def test_another_model_in_such_a_file_is_refused_by_its_tensors(path: Path) -> None:
    import torch

    state = random_state(SMALL)
    state["transformer.h.0.attn.rotary"] = torch.ones(3)
    save_nanogpt(path, state, SMALL)
    assert "'transformer.h.0.attn.rotary' has no place" in refusal(path)
    del state["transformer.h.0.attn.rotary"], state["transformer.h.1.ln_2.bias"]
    save_nanogpt(path, state, SMALL)
    assert "transformer.h.1.ln_2.bias is missing" in refusal(path)
    save_nanogpt(path, {}, SMALL)
    assert "holds no table of tensors" in refusal(path)


def test_a_cut_off_file_is_named(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
    assert "ckpt.pt: cut off" in refusal(path)
