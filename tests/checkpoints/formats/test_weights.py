"""Weights whose names or numbers are not those of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint, resolve
from pytest_touchstone.checkpoints.formats.weights import wrappers_of
from pytest_touchstone.core.errors import CheckpointError


def rewritten(folder: Path, change: Any) -> Path:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = {}
    for name, tensor in load_file(path).items():
        made, value = change(name, tensor)
        tensors[made] = value
    save_file(tensors, path, {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "wrapped",
    [
        "_orig_mod.{}".format,
        "module.{}".format,
        "module.module.{}".format,
        "_fsdp_wrapped_module.{}".format,
        "module._orig_mod.{}".format,
        lambda name: name.replace("model.layers.0.", "model._orig_mod.layers.0._fsdp_wrapped_module."),
    ],
    ids=["compiled", "parallel", "parallel twice", "sharded", "both", "in the middle"],
)
def test_what_a_wrapper_put_into_names_does_not_matter(wrapped: Any, folder: Path, whole: Path) -> None:
    rewritten(folder, lambda name, tensor: (wrapped(name), tensor))
    (info,), (plain,) = (resolve(str(path), seq_len=None) for path in (folder, whole))
    assert wrappers_of(folder)
    assert not wrappers_of(whole)
    assert (info.parameters, info.dtype, info.seq_len) == (plain.parameters, plain.dtype, plain.seq_len)
    assert fingerprint(info) == fingerprint(plain)


def test_names_that_would_be_the_same_are_left_alone(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(
        {**tensors, "_orig_mod.lm_head.weight": tensors["lm_head.weight"].clone()}, path, {"format": "pt"}
    )
    assert wrappers_of(folder) == []


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "bool"])
def test_whole_numbers_without_a_scale_are_refused_by_name(kind: str, folder: Path) -> None:
    import torch

    wanted = "model.layers.0.mlp.up_proj.weight"
    rewritten(
        folder,
        lambda name, tensor: (name, (tensor * 20).to(getattr(torch, kind)) if name == wanted else tensor),
    )
    with pytest.raises(CheckpointError, match=f"'{wanted}' has numbers of type") as caught:
        resolve(str(folder), seq_len=None)
    assert "\n" not in str(caught.value)


def test_tensors_that_were_not_gathered_are_named_with_what_to_do(folder: Path) -> None:
    rewritten(folder, lambda name, tensor: (name, tensor.flatten()[:0] if "layers.1" in name else tensor))
    with pytest.raises(CheckpointError, match=r"tensors without any number: .*zero_to_fp32\.py"):
        resolve(str(folder), seq_len=None)
