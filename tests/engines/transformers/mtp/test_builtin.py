"""``builtin:mtp-tiny``, a trained model as training scripts save it: what is known of it, its logits, its texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perf.speculative_equal import requests, texts
from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation.step import SpeculativeStepper
from pytest_touchstone.engines.transformers.mtp import read_pt
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.references import independent_logits
from tests.support.tiny_mtp import head_logits, mtp_engine


@pytest.fixture(scope="module")
def info() -> CheckpointInfo:
    (found,) = resolve("builtin:mtp-tiny", seq_len=None)
    return found


@pytest.fixture(scope="module")
def alone(info: CheckpointInfo) -> CausalEngine:
    return mtp_engine(info, speculative="off")


def test_what_its_training_wrote_is_known(info: CheckpointInfo) -> None:
    assert (info.name, info.format, info.model_type) == ("mtp-tiny", "mtp", "mtp")
    assert info.weights.params is not None
    assert info.weights.params["n_future_tokens"] == 4
    assert info.training.epoch is not None
    assert info.training.epoch > 1
    assert info.training.val_loss is not None
    assert 2 < info.training.val_loss < 7
    training: Any = info.training.settings
    assert training["config"]["training"]["batch"] == 8
    assert len(training["val_metrics"]["head_losses"]) == 4


def test_its_heads_logits_are_those_of_an_independent_forward_pass(info: CheckpointInfo) -> None:
    import torch

    assert info.weights.params is not None
    engine = mtp_engine(info)
    ids = [
        *TextTokenizer(engine.loaded.tokenizer).prompt(
            "def __add__(self, other):\n    '''Returns the sum of two"
        )
    ]  # type: ignore[misc]
    tensors: dict[str, Any] = {name: held[...] for name, held in read_pt(info.path).tensors.items()}
    wanted = independent_logits(tensors, info.weights.params, ids)
    with torch.no_grad():
        for number, theirs in enumerate(wanted):
            found = head_logits(engine.loaded.model, number, torch.tensor([ids]))[0].numpy()
            assert np.abs(found - theirs).max() < 1e-4


def test_greedy_texts_are_head_0s_token_for_token(
    info: CheckpointInfo, alone: CausalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeculativeStepper, "proposes", lambda *_: True)
    asked = requests(12, 24)
    wanted = texts(alone, asked, len(asked))
    for batch in (5, 12):
        speculative = mtp_engine(info)
        assert texts(speculative, asked, batch) == wanted
        assert speculative.work_done.accepted.mean_length > 1.2


@pytest.mark.slow
@pytest.mark.usefixtures("half")
def test_extra_heads_propose_in_half_precision(info: CheckpointInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpeculativeStepper, "proposes", lambda *_: True)
    asked = requests(6, 24)
    speculative = mtp_engine(info, dtype="bfloat16")
    found = texts(speculative, asked, 6)
    assert speculative.work_done.accepted.mean_length > 1.1
    wanted = texts(mtp_engine(info, speculative="off", dtype="bfloat16"), asked, 6)
    assert sum(mine == theirs for mine, theirs in zip(found, wanted, strict=True)) >= 4  # rounding differs


def test_drawn_texts_are_head_0s_token_for_token(
    info: CheckpointInfo, alone: CausalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeculativeStepper, "proposes", lambda *_: True)
    asked = [
        Generate(one.prompt, max_new_tokens=16, temperature=(0.4, 1.0)[number % 2], top_p=0.95, seed=number)
        for number, one in enumerate(requests(8, 16))
    ]
    assert texts(mtp_engine(info), asked, 5) == texts(alone, asked, 8)
