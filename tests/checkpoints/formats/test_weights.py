"""Weights whose names or numbers are not those of the model.

Folders of other programs: one line that says what to do with them.
"""

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
    assert (info.weights.parameters, info.weights.dtype, info.seq_len) == (
        plain.weights.parameters,
        plain.weights.dtype,
        plain.seq_len,
    )
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


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        resolve(str(folder), seq_len=None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FORMS = [
    (["global_step5/mp_rank_00_model_states.pt", "latest", "zero_to_fp32.py"], "zero_to_fp32.py"),
    (["zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"], "zero_to_fp32.py"),
    (["global_step7/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"], "zero_to_fp32.py"),
    (["pytorch_model_fsdp_0/__0_0.distcp"], "without the .metadata"),
    (["__0_0.distcp"], "without the .metadata"),
    (["pytorch_model_fsdp_0_rank0.bin"], "SHARDED_STATE_DICT"),
    (["consolidated.safetensors", "params.json"], "the form for transformers"),
    (["tf_model.h5"], "from_tf=True"),
    (["flax_model.msgpack"], "from_flax=True"),
    (["model.nemo"], "NeMo"),
    (["iter_0000001/mp_rank_00/model_optim_rng.pt"], "convert_checkpoints.py export"),
    (["mp_rank_00/model_optim_rng.pt"], "convert_checkpoints.py export"),
    ([".metadata", "common.pt", "metadata.json", "__0_0.distcp"], "convert_checkpoints.py export"),
    (["_CHECKPOINT_METADATA", "default/manifest.ocdbt"], "to_huggingface.py"),
    (["model.ckpt-1000.index", "model.ckpt-1000.data-00000-of-00001"], "from_tf=True"),
    (["onnx/model.onnx"], "exported"),
    (["model-00001-of-00002.safetensors"], "model.safetensors.index.json"),
    (["adapter_model.safetensors"], "adapter_config.json"),
]


@pytest.mark.parametrize("config", [True, False], ids=["with config.json", "without"])
@pytest.mark.parametrize(("files", "advice"), FORMS, ids=[files[0] for files, _ in FORMS])
def test_a_folder_of_another_program_is_told_what_to_do_with_it(
    files: list[str], advice: str, config: bool, folder: Path
) -> None:
    (folder / "model.safetensors").unlink()
    if not config:
        (folder / "config.json").unlink()
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"x")
    assert advice in refusal(folder)


def test_a_gguf_file_in_a_folder_without_weights_is_to_be_given_itself(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.gguf")
    assert "give the .gguf file itself" in refusal(folder)
