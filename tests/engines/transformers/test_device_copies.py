"""What crosses between the host and an accelerator in a pass of scores.

There is none here. Tensors without numbers (``meta``) stand for those on it: whatever asks them for a number raises.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.engines.transformers import devices, logits, scoring, split_attention
from pytest_touchstone.engines.transformers.devices import BatchBudget
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.scoring import PrefixTreeScorer
from pytest_touchstone.engines.transformers.split_attention import Attention, attention_of
from pytest_touchstone.engines.transformers.token_work import TokenWork, WorkDone
from tests.support.engines import ON_CPU, engine_for
from tests.support.families import SHOTS, causal_of

pytestmark = ON_CPU

SHARED = tuple(range(5, 45))
WORKS = [
    TokenWork((*SHARED, *range(question, question + 7), choice), (choice, 9))
    for question in range(20, 90, 5)
    for choice in (3, 4)
]


class _Crossings(TorchDispatchMode):
    """Counts the copies from the host to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {one.device.type for one in tree_leaves(args) if isinstance(one, torch.Tensor)}
        self.sent += isinstance(found, torch.Tensor) and found.device.type == "meta" and "cpu" in given
        return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of what the host has read, where ``meta`` is an accelerator that every number is 0 on."""
    found: list[torch.Size] = []

    class Reading:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.shape = tensor.shape

        def numbers(self) -> Any:
            found.append(self.shape)
            return torch.zeros(self.shape).tolist()

    monkeypatch.setattr(devices, "PINNED", {"meta"})
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(logits, "AsyncHostCopy", Reading)
    monkeypatch.setattr(scoring, "_UNREAD", {"meta": 1})
    right = split_attention.fused_attention_name
    monkeypatch.setattr(split_attention, "fused_attention_name", lambda _device, *how: right("cuda", *how))
    return found


def passes_of(model: Any) -> list[torch.Size]:
    """The shapes of the model's passes from now on."""
    found: list[torch.Size] = []

    def hook(_model: Any, _args: Any, inputs: dict[str, Any]) -> None:
        found.append(inputs["input_ids"].shape)

    model.register_forward_pre_hook(hook, with_kwargs=True)
    return found


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen2 sliding", "gpt2"])
def test_a_pass_takes_one_copy_there_and_one_back_and_waits_for_no_number(
    family: str, tmp_path: Path, read: list[torch.Size]
) -> None:
    config = AutoConfig.from_pretrained(causal_of(tmp_path, family))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config).eval()
    done, attention = WorkDone(), attention_of(model)
    assert isinstance(attention, Attention)
    budget = BatchBudget(32, 2**20, vocabulary=config.get_text_config().vocab_size)
    scorer = PrefixTreeScorer(model, SelectiveLogits(model, done), attention, budget=budget, done=done)
    scorer.splits = True
    passes = passes_of(model)
    with _Crossings() as crossings:
        found = [number for some in scorer.scored(WORKS) for number, _ in some]
    assert sorted(found) == [*range(len(WORKS))]
    stems = sum(rows == 1 for rows, _ in passes)  # nothing is asked about what all begin with
    assert len(passes) - stems > 3
    assert crossings.sent == len(passes)
    assert len(read) == len(passes) - stems


@pytest.mark.parametrize("together", [True, False])
def test_numbers_of_one_copy_give_the_scores_of_several(
    together: bool, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, several = (engine_for(llama, together=together) for _ in range(2))
    asked = [Loglikelihood(f"{SHOTS} {word}", f" {word}s") for word in ("one", "two", "three")]
    copies: list[int] = []

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        copies.append(tensor.numel())
        return tensor

    def reading(self: Any, tensor: torch.Tensor) -> None:
        self._host, self._there = tensor, None

    wanted, passes = several.answer(asked), passes_of(one.loaded.model)
    monkeypatch.setattr(devices, "PINNED", {"cpu"})
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(devices.AsyncHostCopy, "__init__", reading)
    assert one.answer(asked) == wanted
    assert len(copies) == len(passes) > 0
