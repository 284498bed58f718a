"""The last layer computes only the places that are asked for, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.fused_layers import fuse, fuse_steps
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.pool import load_weights
from pytest_touchstone.engines.transformers.token_work import WorkDone

IDS = torch.arange(30).view(3, 10)


@pytest.fixture
def model(llama: Path) -> Any:
    (info,) = resolve(str(llama), seq_len=None)
    found = load_weights(info, ModelSettings(device="cpu")).model
    fuse(found)
    fuse_steps(found)
    return found


def rows_of_last(model: Any) -> list[int]:
    """The tokens that the last layer's second product computes, pass by pass."""
    seen: list[int] = []
    right = model.model.layers[-1].mlp.down_proj.forward

    def forward(states: torch.Tensor) -> torch.Tensor:
        seen.append(states.shape[0] * states.shape[1])
        found: torch.Tensor = right(states)
        return found

    model.model.layers[-1].mlp.down_proj.forward = forward
    return seen


@pytest.mark.parametrize(
    ("rows", "columns", "computed"),
    [([0, 2, 2], [9, 0, 4], 3), ([1, 1], [5, 5], 2), ([], [], 0), ([0] * 40, [7] * 40, 30)],
)
def test_only_what_is_wanted_is_computed(
    model: Any, rows: list[int], columns: list[int], computed: int
) -> None:
    with torch.inference_mode():
        expected = model(input_ids=IDS).logits[rows, columns]
        seen = rows_of_last(model)
        needed = SelectiveLogits(model, WorkDone())
        found = needed.logits({"input_ids": IDS}, rows, columns)
        assert seen == [computed]
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.allclose(model(input_ids=IDS).logits[rows, columns], expected, atol=1e-5)
        assert seen == [computed, 30], "all of them for other code"


def test_a_hook_sees_all_places(model: Any) -> None:
    seen: list[Any] = []
    model.model.norm.register_forward_hook(lambda _module, given, _found: seen.append(given[0].shape))
    needed = SelectiveLogits(model, WorkDone())
    with torch.inference_mode():
        needed.logits({"input_ids": IDS}, [0], [9])
    assert [list(shape[:2]) for shape in seen] == [[3, 10]]
