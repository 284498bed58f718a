"""What trainings leave scores as the same weights do that ``save_pretrained`` wrote, or as plain torch says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint
from pytest_touchstone.core.requests import Generate, Loglikelihood, RollingLoglikelihood
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory, loading
from tests.support.distributed_files import save_distributed, save_on_two_ranks
from tests.support.resolved import only
from tests.support.tiny import tiny_causal
from tests.support.tiny_mtp import PARAMS, save_mtp
from tests.support.tiny_mtp import random_state as llama_state

TEXT = "The quick brown fox jumps over the lazy dog."
REQUESTS = (
    RollingLoglikelihood(TEXT),
    Loglikelihood("The answer", " is 42."),
    Generate("She said", stop=("\n",), max_new_tokens=8),
)


def answers(path: Path, **options: Any) -> list[Any]:
    """What the checkpoint says to a few requests."""
    engine = TransformersFactory().open(only(path, **options), ModelSettings(device="cpu", threads=1))
    found = list(engine.answer(list(REQUESTS)))
    engine.close()
    return found


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def beside(folder: Path, run: Path) -> None:
    """Copies config and tokenizer into the folder of a run."""
    shutil.copytree(folder, run, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("whole") / "final")


def test_a_distributed_checkpoint_scores_as_safetensors_do_and_has_their_fingerprint(
    whole: Path, tmp_path: Path
) -> None:
    beside(whole, tmp_path)
    wrapped = {f"_orig_mod.{name}": tensor for name, tensor in tensors(whole).items()}
    save_distributed({"model": wrapped}, tmp_path / "checkpoint-5" / "pytorch_model_fsdp_0")
    save_distributed({"optimizer": {"x": wrapped}}, tmp_path / "checkpoint-5" / "optimizer_0")
    save_distributed(tensors(whole), tmp_path / "step-6")
    for name in ("checkpoint-5", "step-6"):
        assert answers(tmp_path / name) == answers(whole)
        assert fingerprint(only(tmp_path / name)) == fingerprint(only(whole))


@pytest.mark.slow
def test_what_two_ranks_wrote_scores_as_safetensors_do(whole: Path, tmp_path: Path) -> None:
    folder = save_on_two_ranks(tensors(whole), tmp_path / "step-7")
    assert len(list(folder.glob("*.distcp"))) == 2
    assert answers(folder, base_model=str(whole)) == answers(whole)
    assert fingerprint(only(folder, base_model=str(whole))) == fingerprint(only(whole))


def test_another_number_type_is_converted(whole: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    half = {name: tensor.bfloat16() for name, tensor in tensors(whole).items()}
    shutil.copytree(whole, tmp_path / "half")
    save_file(half, tmp_path / "half" / "model.safetensors", {"format": "pt"})
    save_distributed({"model": half}, tmp_path / "step-1")
    assert answers(tmp_path / "step-1", base_model=str(whole)) == answers(tmp_path / "half")
    # On an accelerator weights have the type in which they are stored.
    info = only(tmp_path / "step-1", base_model=str(whole))
    assert loading._load(info, "auto", torch.device("cpu")).model.dtype == torch.bfloat16


OLMO = {
    "embeddings.": "model.embed_tokens.",
    "lm_head.norm.": "model.norm.",
    "lm_head.w_out.": "lm_head.",
    "attention.w_q.": "self_attn.q_proj.",
    "attention.w_k.": "self_attn.k_proj.",
    "attention.w_v.": "self_attn.v_proj.",
    "attention.w_out.": "self_attn.o_proj.",
    "attention.q_norm.": "self_attn.q_norm.",
    "attention.k_norm.": "self_attn.k_norm.",
    "feed_forward.w1.": "mlp.gate_proj.",
    "feed_forward.w2.": "mlp.down_proj.",
    "feed_forward.w3.": "mlp.up_proj.",
}
NORMS = {
    "olmo2": {
        "attention_norm.": "post_attention_layernorm.",
        "feed_forward_norm.": "post_feedforward_layernorm.",
    },
    "llama": {"attention_norm.": "input_layernorm.", "feed_forward_norm.": "post_attention_layernorm."},
}


@pytest.mark.parametrize("model_type", ["olmo2", "llama"])
def test_olmo_cores_names_are_those_of_transformers(model_type: str, tmp_path: Path) -> None:
    whole = tiny_causal(tmp_path / "whole", model_type=model_type)
    names = {theirs: ours for ours, theirs in {**OLMO, **NORMS[model_type]}.items()}

    def olmos(name: str) -> str:
        theirs, ours = next(pair for pair in names.items() if pair[0] in name)
        return name.replace(theirs, ours).replace("model.layers.", "blocks.")

    state = {olmos(name): tensor for name, tensor in tensors(whole).items()}
    assert "blocks.0.attention.w_q.weight" in state
    save_distributed({"model": state, "optim": {}}, tmp_path / "step10" / "model_and_optim")
    (tmp_path / "step10" / "config.json").write_text('{"model": {"d_model": 32}}', encoding="utf-8")
    assert answers(tmp_path / "step10", base_model=str(whole)) == answers(whole)
    assert fingerprint(only(tmp_path / "step10", base_model=str(whole))) == fingerprint(only(whole))


def test_torchtitans_llama_scores_as_llamas_reference_code_does(tmp_path: Path) -> None:
    state = llama_state(n_future_tokens=1)
    params = {**PARAMS, "n_future_tokens": 1}
    plain = save_mtp(tmp_path / "plain", state, config={"model": params})
    moments = {"optimizer": {f"state.{name}.exp_avg": tensor for name, tensor in state.items()}}
    folder = save_distributed({**state, **moments}, tmp_path / "checkpoint" / "step-1000")
    for path in (tmp_path / "plain").glob("tokenizer*"):
        shutil.copy(path, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "params.json").write_text(json.dumps(params), encoding="utf-8")
    info = only(folder)
    assert (info.name, info.format, info.training.global_step) == ("step-1000", "mtp", 1000)
    assert answers(folder) == answers(plain)
    assert fingerprint(info) == fingerprint(only(plain))
