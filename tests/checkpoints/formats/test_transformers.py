"""Sizes in a config that cannot be, and the length that a table of positions gives."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.config_files import ModelConfig
from pytest_touchstone.checkpoints.formats.content import Shapes
from pytest_touchstone.checkpoints.formats.transformers import HIDDEN_ROWS, check_sizes, context_length
from pytest_touchstone.core.errors import CheckpointError


def changed(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", -2),
        ("sliding_window", -1),
        ("sliding_window", 0),
        ("head_dim", -8),
        ("head_dim", 0),
        ("rope_theta", 0),
        ("rope_theta", -5.0),
        ("rms_norm_eps", -1.0),
        ("rms_norm_eps", math.nan),
        ("layer_norm_epsilon", -1e-5),
        ("moe_intermediate_size", -1),
        ("rope_theta", math.inf),
    ],
)
def test_a_number_that_is_no_size_is_refused_by_its_name(name: str, value: float, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"{name}=\S+ is not possible; save") as caught:
        resolve(str(changed(folder, **{name: value})), seq_len=None)
    assert "\n" not in str(caught.value)


def test_a_number_within_a_table_of_the_config_is_refused_by_its_full_name(folder: Path) -> None:
    changed(folder, rope_parameters={"rope_type": "linear", "factor": 0, "rope_theta": 1e4})
    with pytest.raises(CheckpointError, match=r"rope_parameters\.factor=0 is not possible"):
        resolve(str(folder), seq_len=None)


def test_experts_of_which_none_is_taken_are_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="num_experts_per_tok=0"):
        resolve(str(changed(folder, num_local_experts=4, num_experts_per_tok=0)), seq_len=None)


@pytest.mark.parametrize(
    "values",
    [
        {"pad_token_id": -1},
        {"max_relative_positions": -1},
        {"num_local_experts": 0, "num_experts_per_tok": 0},
        {"sliding_window": 0, "use_sliding_window": False},
        {"sparse_pred_ignore_index": -100},
        {"quantization_config": {"group_size": -1}},
    ],
    ids=repr,
)
def test_numbers_that_honest_configs_have_are_taken(values: dict[str, Any]) -> None:
    config = ModelConfig.model_validate({"model_type": "llama", **values})
    check_sizes(Path("config.json"), config, {})


@pytest.mark.parametrize("model_type", sorted(HIDDEN_ROWS))
def test_transformers_gives_these_tables_of_positions_their_hidden_rows(model_type: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    sizes = {"d_model": 32, "hidden_size": 32, "vocab_size": 50, "num_hidden_layers": 1, "decoder_layers": 1}
    heads = {"num_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
    config = AutoConfig.for_model(
        model_type, **sizes, **heads, word_embed_proj_dim=32, is_encoder_decoder=False
    )
    masked = model_type in ("mra", "nystromformer", "yoso")
    with torch.device("meta"):
        model = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_config(config)
    tables: Shapes = {
        name: tuple(one.shape) for name, one in model.state_dict().items() if "position" in name
    }
    read = ModelConfig.model_validate({"model_type": model_type, "max_position_embeddings": 64})
    assert context_length(Path(), "causal", read, tables, None) == (64, {})


def test_a_table_gives_the_length_where_no_field_does() -> None:
    config = ModelConfig.model_validate({"model_type": "whisper"})
    shapes: Shapes = {"model.decoder.embed_positions.weight": (448, 32)}
    assert context_length(Path(), "causal", config, shapes, None) == (448, {})
