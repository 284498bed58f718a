"""Steps by the kernels give the logits of the model's own code, for heads, rows and prefixes of any number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from pytest_touchstone.engines.transformers.cpu.packing import Packer
from pytest_touchstone.engines.transformers.cpu.steps import StepKernels
from pytest_touchstone.engines.transformers.devices import first_batch_budget
from pytest_touchstone.engines.transformers.fused_layers import fuse, fuse_steps, prepare_steps
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.kv_cache import SlotCache
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.scoring import PrefixTreeScorer
from pytest_touchstone.engines.transformers.split_attention import (
    Attention,
    attention_of,
    use_split_attention,
)
from pytest_touchstone.engines.transformers.token_work import WorkDone

VOCABULARY = 90


def model_of(*, width: int, heads: int, keys: int, normed: bool = False, **more: Any) -> Any:
    """A random model, and the same one as it is computed for speed; ``normed``: Qwen3's, whose heads have norms."""
    torch.manual_seed(3)
    config = (Qwen3Config if normed else LlamaConfig)(
        vocab_size=VOCABULARY,
        hidden_size=13 * heads,
        intermediate_size=75,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        head_dim=width,
        max_position_embeddings=2048,
        initializer_range=0.3,
        **more,
    )
    kind: Any = Qwen3ForCausalLM if normed else LlamaForCausalLM
    plain, quick = kind(config).eval(), kind(config).eval()
    for name, weight in plain.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):  # all are 1 in a new model
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    quick.load_state_dict(plain.state_dict())
    return plain, quick


def tokens(count: int, seed: int) -> list[int]:
    return [(7 * at + 13 * seed + at * at * seed) % VOCABULARY for at in range(count)]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each step whether the kernels computed it."""
    found: list[bool] = []
    right = StepKernels.compute

    def compute(self: Any, *given: Any) -> bool:
        found.append(right(self, *given))
        return found[-1]

    monkeypatch.setattr(StepKernels, "compute", compute)
    return found


cases = pytest.mark.parametrize(
    ("shape", "prefix", "own", "fed"),
    [
        ({"width": 64, "heads": 9, "keys": 3}, 300, [5, 1, 30], 1),
        ({"width": 64, "heads": 2, "keys": 2}, 0, [260], 1),
        ({"width": 16, "heads": 6, "keys": 1}, 40, [3] * 40, 2),
        ({"width": 10, "heads": 5, "keys": 5}, 9, [2, 20], 3),
        ({"width": 96, "heads": 4, "keys": 2}, 1, [2, 300, 7], 1),
        ({"width": 34, "heads": 4, "keys": 2, "attention_bias": True, "mlp_bias": True}, 700, [2, 9], 1),
        ({"width": 64, "heads": 6, "keys": 2, "normed": True}, 300, [5, 1, 30], 1),
        ({"width": 10, "heads": 3, "keys": 3, "normed": True, "attention_bias": True}, 9, [2] * 20, 2),
    ],
)


@cases
@pytest.mark.usefixtures("threads")
def test_logits_are_those_of_the_models_own_code(
    shape: dict[str, Any], prefix: int, own: list[int], fed: int, computed: list[bool]
) -> None:
    plain, quick = model_of(**shape)
    begin = tokens(prefix, 1)
    with torch.inference_mode():
        fuse(quick)
        Packer(quick, least=0).pack(quick)
        fuse_steps(quick)
        assert prepare_steps(quick)
        rows = [tokens(count, 2 + at) for at, count in enumerate(own)]
        added = [tokens(fed, 50 + at) for at in range(len(own))]
        found = _steps(quick, begin, rows, added)
        for at, (row, more) in enumerate(zip(rows, added, strict=True)):
            expected = plain(input_ids=torch.tensor([begin + row + more])).logits[0, -fed:]
            off = (found[at * fed : (at + 1) * fed] - expected).abs().max()
            assert off <= 2e-5 * expected.abs().max(), (at, float(off))
    assert computed
    assert all(computed)


@cases
@pytest.mark.usefixtures("threads", "half")
def test_steps_in_bfloat16_are_as_exact_as_the_models_own_code(
    shape: dict[str, Any], prefix: int, own: list[int], fed: int, computed: list[bool]
) -> None:
    exact, quick = model_of(**shape)
    plain, _ = model_of(**shape)
    plain.bfloat16()
    exact.load_state_dict(plain.state_dict())
    quick.bfloat16()
    begin = tokens(prefix, 1)
    with torch.inference_mode():
        fuse(quick)
        Packer(quick, least=0).pack(quick)
        fuse_steps(quick)
        by_kernels = prepare_steps(quick)
        rows = [tokens(count, 2 + at) for at, count in enumerate(own)]
        added = [tokens(fed, 50 + at) for at in range(len(own))]
        found = _steps(quick, begin, rows, added).float()
        off, usual = [], []
        for at, (row, more) in enumerate(zip(rows, added, strict=True)):
            ids = torch.tensor([begin + row + more])
            expected = exact(input_ids=ids).logits[0, -fed:]
            off.append(found[at * fed : (at + 1) * fed] - expected)
            usual.append(plain(input_ids=ids).logits[0, -fed:].float() - expected)
    assert torch.cat(off).square().mean() <= 2 * torch.cat(usual).square().mean()
    assert by_kernels == bool(computed)  # without a tile unit, such products are torch's
    assert all(computed)


def _steps(model: Any, begin: list[int], rows: list[list[int]], added: list[list[int]]) -> torch.Tensor:
    attention, done, budget = attention_of(model), WorkDone(), first_batch_budget(model, VOCABULARY)
    assert isinstance(attention, Attention)
    needed = SelectiveLogits(model, done)
    stepper = DecodeStep(model, needed, attention, budget=budget, done=done)
    scorer = PrefixTreeScorer(model, needed, attention, budget=budget, done=done)
    slots = SlotCache(scorer.prefix(tuple(begin)))
    with use_split_attention(model):
        stepper.prefill(slots, rows)
        found = stepper.decode_multi([slots], [added], len(added[0]))
    needed.close()
    return found


@pytest.mark.parametrize("name", ["input_layernorm", "self_attn.q_norm"])
def test_a_weight_that_is_put_in_the_place_of_another_is_seen(name: str) -> None:
    _, quick = model_of(width=16, heads=2, keys=1, normed=True)
    with torch.inference_mode():
        fuse(quick)
        Packer(quick, least=0).pack(quick)
        fuse_steps(quick)
        prepare_steps(quick)
        before = _steps(quick, [], [[1, 2, 3]], [[4]])
        norm = quick.model.layers[0].get_submodule(name)
        norm.weight = torch.nn.Parameter(3 * norm.weight, requires_grad=False)
        assert not torch.allclose(_steps(quick, [], [[1, 2, 3]], [[4]]), before)
