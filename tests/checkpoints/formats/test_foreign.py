"""Folders of other programs: one line that says what to do with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        resolve(str(folder), seq_len=None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FORMS = [
    (["global_step5/mp_rank_00_model_states.pt", "latest", "zero_to_fp32.py"], "zero_to_fp32.py"),
    (["zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"], "zero_to_fp32.py"),
    (["pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/.metadata"], "accelerate merge-weights"),
    (["__0_0.distcp", ".metadata"], "accelerate merge-weights"),
    (["consolidated.safetensors", "params.json"], "the form for transformers"),
    (["tf_model.h5"], "from_tf=True"),
    (["flax_model.msgpack"], "from_flax=True"),
    (["model.nemo"], "NeMo"),
    (["iter_0000001/mp_rank_00/model_optim_rng.pt"], "Megatron"),
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
