"""Folders in which other programs keep a model in a form of their own, and how to make a checkpoint of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FORMS: Final = (
    (
        ("zero_to_fp32.py", "global_step*", "zero_pp_rank_*", "bf16_zero_pp_rank_*", "mp_rank_*"),
        "its weights are in DeepSpeed's own files; merge them: python zero_to_fp32.py . . --safe_serialization "
        "in the folder that DeepSpeed wrote",
    ),
    (
        ("pytorch_model_fsdp_*", "__*_*.distcp", "*/__*_*.distcp"),
        "its weights are in FSDP's shards (.distcp); merge them: accelerate merge-weights SHARDS_FOLDER OUTPUT_FOLDER",
    ),
    (
        ("consolidated*.safetensors", "consolidated*.pth"),
        "its weights are in the form of the model's makers (consolidated); give the form for transformers, with "
        "config.json and model.safetensors",
    ),
    (("*.gguf",), "give the .gguf file itself"),
    (
        ("tf_model*.h5", "flax_model*.msgpack", "model.ckpt*"),
        "its weights are TensorFlow's or Flax's; convert them with a version 4 of transformers: "
        "from_pretrained(..., from_tf=True or from_flax=True), then save_pretrained",
    ),
    (
        ("*.nemo", "model_weights", "*/model_optim_rng.pt", "*/mp_rank_*"),
        "its weights are NeMo's or Megatron's; convert them to a folder for transformers",
    ),
    (
        ("*.onnx", "onnx/*.onnx", "*.mlmodel", "openvino_model.bin"),
        "an exported model; give the one it was made of",
    ),
    (("rng_state*.pth", "optimizer.pt"), "its trainer left only its own state; give a folder with the model"),
    (
        ("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin"),
        "a shard is there, but not the index (model.safetensors.index.json) that names all of them; "
        "copy the checkpoint again",
    ),
    (
        ("adapter_model.safetensors", "adapter_model.bin"),
        "an adapter is there, but no adapter_config.json; copy it too",
    ),
)
"""Names of files or folders, and what to do where one of them is there."""


def foreign(folder: Path) -> str | None:
    """Advice on a folder that holds a model in another program's form; None where no file of it says so."""
    for patterns, advice in _FORMS:
        if (name := next((path.name for one in patterns for path in folder.glob(one)), None)) is not None:
            return f"{name[:80]!r}: {advice}"
    return None
