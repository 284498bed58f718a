"""Unpacked models in the cache: the same answers as before, only what is whole, and no more than fits."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.builtin import SMOLLM2, builtin_path
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Loglikelihood, Request
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import compat
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.gguf import (
    UnpackedModels,
    broken,
    same_tokenizer,
    seal,
    write_safetensors,
)
from pytest_touchstone.engines.transformers.loading import LoadedModel
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.families import causal_of
from tests.support.fetched import needs_smollm2
from tests.support.tiny import bytelevel_tokenizer

SETTINGS = ModelSettings(device="cpu", dtype="float32", threads=1)


def given(folder: Path, family: str = "llama") -> tuple[CheckpointInfo, LoadedModel]:
    (info,) = resolve(str(causal_of(folder, family)), seq_len=None)
    return info, load_weights(info, SETTINGS)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> tuple[CheckpointInfo, LoadedModel]:
    return given(tmp_path_factory.mktemp("tied"), "llama tied")


def models(folder: Path, **limits: int) -> UnpackedModels:
    return UnpackedModels(torch.float32, folder / "unpacked", **{"least": 0, **limits})


def test_a_kept_model_is_the_same(tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path) -> None:
    info, loaded = tied
    kept = models(tmp_path)
    assert kept.find(info) is None
    assert kept.keep(info, loaded.model, loaded.tokenizer)
    found = kept.find(info)
    assert found is not None
    again = load_weights(found, SETTINGS)
    before, after = loaded.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert again.model.get_output_embeddings().weight is again.model.get_input_embeddings().weight
    assert same_tokenizer(loaded.tokenizer, again.tokenizer)
    assert again.model.generation_config.to_dict() == loaded.model.generation_config.to_dict()
    assert [path.name[0] for path in found.path.parent.iterdir()] != ["."]


def test_another_type_or_content_is_not_found(
    tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path
) -> None:
    info, loaded = tied
    assert models(tmp_path).keep(info, loaded.model, loaded.tokenizer)
    assert UnpackedModels(torch.bfloat16, tmp_path / "unpacked").find(info) is None
    copy = replace(info, path=shutil.copytree(info.path, tmp_path / "copy"))
    assert (models(tmp_path).find(copy) is not None) is (copy.path.stem == info.path.stem)
    said = json.loads((copy.path / "config.json").read_text())
    (copy.path / "config.json").write_text(json.dumps({**said, "rms_norm_eps": 0.5}))
    assert models(tmp_path).find(copy) is None


def test_a_tokenizer_that_would_not_come_back_the_same_keeps_the_model_out(
    tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, loaded = tied
    other = bytelevel_tokenizer(300)
    monkeypatch.setattr(loaded.tokenizer, "save_pretrained", other.save_pretrained)
    assert not models(tmp_path).keep(info, loaded.model, loaded.tokenizer)
    assert list((tmp_path / "unpacked").iterdir()) == []


@pytest.mark.parametrize("limits", [{"least": 1 << 30}, {"most": 10}])
def test_what_is_too_small_or_too_large_is_not_kept(
    limits: dict[str, int], tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path
) -> None:
    info, loaded = tied
    assert not models(tmp_path, **limits).keep(info, loaded.model, loaded.tokenizer)
    assert list((tmp_path / "unpacked").iterdir()) == []


def test_where_nothing_can_be_written_nothing_is_kept(
    tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path
) -> None:
    info, loaded = tied
    (tmp_path / "unpacked").write_text("a file")
    assert not models(tmp_path).keep(info, loaded.model, loaded.tokenizer)


def test_the_one_unused_for_longest_goes_first_and_what_a_dead_process_left(
    tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path
) -> None:
    info, loaded = tied
    assert models(tmp_path).keep(info, loaded.model, loaded.tokenizer)
    found = models(tmp_path).find(info)
    assert found is not None
    size = sum(file.stat().st_size for file in found.path.iterdir())
    folder = found.path.parent
    for name, age in (
        ("older", 3000),
        ("newer", 2000),
        (".unfinished-dead", 90_000),
        (".unfinished-live", 5),
    ):
        shutil.copytree(found.path, folder / name)
        os.utime(folder / name, times=(folder.stat().st_mtime - age,) * 2)
    models(tmp_path).drop(found)
    assert models(tmp_path, most=int(2.5 * size)).keep(info, loaded.model, loaded.tokenizer)
    assert {path.name for path in folder.iterdir()} == {found.path.name, "newer", ".unfinished-live"}


def swap_a_number(weights: Path) -> None:
    with weights.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\0\0\x80\x3f" * 2)


def swap_for_others_of_the_same_time(weights: Path) -> None:
    before = weights.stat()
    tensors = {name: tensor.neg() for name, tensor in load_file(weights).items()}
    write_safetensors(weights, tensors)
    assert weights.stat().st_size == before.st_size
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))


def shorten(weights: Path) -> None:
    os.truncate(weights, weights.stat().st_size - 4)


def leave_out_the_tokenizer(weights: Path) -> None:
    (weights.parent / "tokenizer.json").unlink()


def break_the_seal(weights: Path) -> None:
    (weights.parent / "seal.json").write_text("{")


@pytest.mark.parametrize(
    "change",
    [swap_a_number, swap_for_others_of_the_same_time, shorten, leave_out_the_tokenizer, break_the_seal],
)
def test_a_kept_model_that_was_changed_is_not_found_and_goes(
    change: Callable[[Path], None], tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path
) -> None:
    info, loaded = tied
    kept = models(tmp_path)
    assert kept.keep(info, loaded.model, loaded.tokenizer)
    found = kept.find(info)
    assert found is not None
    assert kept.find(info) == found
    change(found.path / "model.safetensors")
    assert kept.find(info) is None
    assert not found.path.exists()
    assert kept.keep(info, loaded.model, loaded.tokenizer)


def test_a_kept_model_in_the_place_of_another_is_not_found(
    tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path
) -> None:
    info, loaded = tied
    kept = models(tmp_path)
    assert kept.keep(info, loaded.model, loaded.tokenizer)
    found = kept.find(info)
    assert found is not None
    sealed = found.path.rename(found.path.with_name("of another"))
    assert broken(sealed) == f"it was written as {found.path.name}"


def test_only_parts_of_large_weights_are_read_at_a_start(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(1 << 36)  # a file with holes: reading all of it would take minutes
    seal(folder, "large")
    assert broken(folder) is None


def test_weights_are_written_as_safetensors_reads_them(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {
        "one": torch.arange(6, dtype=torch.float32).view(2, 3).t(),
        "half": torch.randn(3).bfloat16(),
        "number": torch.tensor(7),
        "none": torch.zeros(0, 4),
    }
    write_safetensors(tmp_path / "w.safetensors", tensors)
    found = load_file(tmp_path / "w.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert found["half"].dtype is torch.bfloat16


def test_a_missing_package_is_named_before_the_cache_is_asked(
    tied: tuple[CheckpointInfo, LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(compat, "find_spec", lambda _name: None)
    with pytest.raises(CheckpointError, match="needs the package gguf"):
        load_weights(replace(tied[0], path=tmp_path / "model.gguf", format="gguf"), SETTINGS)


@needs_smollm2
@pytest.mark.slow
def test_a_gguf_answers_the_same_from_the_cache_and_is_unpacked_again_where_that_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (info,) = resolve(str(builtin_path(SMOLLM2)), seq_len=None)
    monkeypatch.setenv("TOUCHSTONE_CACHE", str(tmp_path / "cache"))
    asked: list[Request] = [
        *(Loglikelihood("The capital of France is", place) for place in (" Paris", " Rome", " a town")),
        *(Generate(text, max_new_tokens=8) for text in ("Once upon a time", "def add(a, b):\n")),
    ]

    def answers() -> Any:
        engine = CausalEngine(info, load_weights(info, SETTINGS), SETTINGS)
        found = engine.answer(asked)
        engine.close()
        return found

    first = answers()
    (kept,) = (tmp_path / "cache" / "unpacked").iterdir()
    written = (kept / "model.safetensors").stat()
    assert answers() == first
    assert (kept / "model.safetensors").stat().st_ino == written.st_ino
    with (kept / "model.safetensors").open("r+b") as file:
        file.truncate(written.st_size // 2)
    assert answers() == first
    assert (kept / "model.safetensors").stat().st_size == written.st_size
