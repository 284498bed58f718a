"""Masked models whose tables are longer than their config: built to the file's shapes, every tensor matched."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import FillMask, FillMaskAnswer
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.engines import DEVICE
from tests.support.lines import naming
from tests.support.resolved import only
from tests.support.tiny import pickle_weights, tiny_masked

SETTINGS = ModelSettings(device=DEVICE, threads=1)
LONG = "the river was wide " * 45 + "[MASK] " + "a dog " * 10
"""200 tokens and some, more than the short config says."""

RELATIVE: dict[str, Any] = {
    "model_type": "deberta-v2",
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
}
FORMS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert"},
    "deberta, a row a distance": {**RELATIVE, "position_buckets": -1},
    "deberta, buckets": {**RELATIVE, "position_buckets": 64},
    "deberta, no table of positions": {**RELATIVE, "position_buckets": -1, "position_biased_input": False},
    "deberta, distances apart": {**RELATIVE, "position_buckets": -1, "max_relative_positions": 300},
}
STALE: dict[str, dict[str, Any]] = {
    "bert": {"max_position_embeddings": 128},
    "deberta, a row a distance": {"max_position_embeddings": 128},
    "deberta, buckets": {
        "max_position_embeddings": 128,
        "max_relative_positions": 256,
        "position_buckets": 32,
    },
    "deberta, no table of positions": {"max_position_embeddings": 128},
    "deberta, distances apart": {"max_position_embeddings": 128, "max_relative_positions": 128},
}
"""What the config says afterwards: that of the model before it was extended."""


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def answer(info: CheckpointInfo) -> FillMaskAnswer:
    engine = open_engine(info, SETTINGS)
    (found,) = engine.answer([FillMask(LONG, 5)])
    engine.close()
    assert isinstance(found, FillMaskAnswer)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "bin"])
def test_a_model_of_a_stale_config_is_the_model_of_its_own(tmp_path: Path, form: str, pickled: bool) -> None:
    folder = tiny_masked(tmp_path / "checkpoint-655", seq_len=256, **FORMS[form])
    if pickled:
        pickle_weights(folder)
    right = answer(only(folder))
    assert right.truncated == 0
    change_config(folder, **STALE[form])
    info = only(folder)
    assert info.seq_len == 256
    assert info.weights.overrides
    assert answer(info) == right


def test_distances_may_stay_as_short_as_they_were(tmp_path: Path) -> None:
    folder = tiny_masked(
        tmp_path / "m", seq_len=256, **FORMS["deberta, a row a distance"], max_relative_positions=128
    )
    right = answer(only(folder))
    change_config(folder, max_position_embeddings=128, max_relative_positions=-1)
    assert only(folder).weights.overrides == {"max_position_embeddings": 256, "max_relative_positions": 128}
    assert answer(only(folder)) == right


def test_less_than_the_tables_is_taken_and_more_is_a_mistake(tmp_path: Path) -> None:
    folder = tiny_masked(tmp_path / "m", seq_len=256, **FORMS["deberta, a row a distance"])
    change_config(folder, max_position_embeddings=128)
    assert answer(only(folder, 100)).truncated > 0
    with pytest.raises(CheckpointError, match=naming("256 tokens", "--eval-seq-len 257")):
        only(folder, 257)


def tensors_changed(folder: Path, change: Any) -> str:
    """The fault of loading the folder with its tensors changed."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        open_engine(only(folder), SETTINGS).close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_tensor_must_fit(tmp_path: Path) -> None:
    import torch

    def fresh(name: str) -> Path:
        return tiny_masked(tmp_path / name, seq_len=256, **FORMS["deberta, a row a distance"])

    query = "deberta.encoder.layer.0.attention.self.query_proj.weight"
    said = tensors_changed(fresh("narrow"), lambda found: found.update({query: torch.zeros(32, 16)}))
    assert re.search(rf"{re.escape(query)} \[32, 16\] .*\[32, 32\]", said)
    said = tensors_changed(fresh("less"), lambda found: found.pop(query))
    assert naming("1 tensor", "DebertaV2ForMaskedLM", "missing", query).search(said)
    extra = "deberta.encoder.layer.7.output.dense.weight"
    said = tensors_changed(fresh("more"), lambda found: found.update({extra: torch.zeros(2, 2)}))
    assert naming("1 tensor", "DebertaV2ForMaskedLM", "without", extra).search(said)
    table = "deberta.encoder.rel_embeddings.weight"
    said = tensors_changed(fresh("odd"), lambda found: found.update({table: torch.zeros(301, 32)}))
    assert naming(table, "301 rows").search(said)
