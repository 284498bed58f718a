"""Few tokens of each row attend to a prefix and its own keys as by one softmax over both."""

from __future__ import annotations

import pytest
import torch

from pytest_touchstone.engines.transformers.cpu import processor
from pytest_touchstone.engines.transformers.split_attention import (
    attach_prefix,
    attend_all_keys,
    attend_cache,
    attend_own_keys,
    fused_attention_name,
)

HEADS, GROUP, WIDTH, OWN, SCALE = 2, 3, 16, 9, 0.3


def by_one_softmax(
    asked: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, prefix: torch.Tensor
) -> torch.Tensor:
    rows = len(asked)
    keys, values = (
        torch.cat((before.expand(rows, -1, -1, -1), own), dim=2).repeat_interleave(GROUP, dim=1).double()
        for before, own in zip(prefix, (key, value), strict=True)
    )
    scores = SCALE * (asked.double() @ keys.transpose(2, 3))
    scores[..., prefix.shape[3] :] += mask
    return (scores.softmax(-1) @ values).transpose(1, 2).flatten(2)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("rows", [1, 5, 32])
@pytest.mark.parametrize("past", [0, 1, 40, 700])
@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize(
    ("dtype", "half"),
    [
        (torch.float32, "by itself"),
        *((dtype, half) for dtype in (torch.bfloat16, torch.float16) for half in ("by itself", "in float32")),
    ],
    indirect=["half"],
)
@pytest.mark.usefixtures("half")
def test_the_tokens_of_each_row_see_the_prefix_and_the_own_keys_before_them(
    rows: int, past: int, tokens: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(rows + past)
    asked = (3 * torch.randn(rows, HEADS * GROUP + HEADS, tokens, WIDTH).to(dtype))[:, : HEADS * GROUP]
    buffers = torch.randn(2, rows + 1, HEADS, OWN + 4, WIDTH).to(dtype)  # with room to spare
    key, value = buffers[:, :rows, :, :OWN]
    prefix = torch.randn(2, 1, HEADS, past, WIDTH).to(dtype)
    last = torch.arange(rows)[:, None] % (OWN - tokens + 1) + torch.arange(tokens)
    mask = torch.zeros(rows, 1, tokens, OWN, dtype=dtype)
    mask.masked_fill_(torch.arange(OWN) > last[:, None, :, None], torch.finfo(dtype).min)
    expected = by_one_softmax(asked, key, value, mask, prefix)
    if past:
        attach_prefix(key, (prefix[0], prefix[1]))
    found = attend_cache(asked, (key, value), mask, SCALE).flatten(2)
    bound = 1e-5 if dtype is torch.float32 else 5e-2
    assert float((found.double() - expected).abs().max()) <= bound


def test_products_that_are_not_right_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = processor._attend_by_onednn
    processor._products_are_right.cache_clear()
    try:
        monkeypatch.setattr(
            processor,
            "_attend_by_onednn",
            lambda *given: (right(*given)[0] + 1e-3, right(*given)[1]),
        )
        assert not processor._products_are_right(torch.float32)
    finally:
        processor._products_are_right.cache_clear()


@pytest.mark.parametrize(
    ("device", "dtype", "width", "name"),
    [
        ("cpu", "torch.float32", 64, "flash_attention_for_cpu"),
        ("cuda", "torch.bfloat16", 128, "flash_attention"),
        ("cuda", "torch.float16", 256, "flash_attention"),
        ("cuda", "torch.float32", 128, "efficient_attention"),
        ("cuda", "torch.bfloat16", 512, "efficient_attention"),
        ("cuda", "torch.bfloat16", 60, None),
        ("mps", "torch.float16", 64, None),
    ],
)
def test_the_operation_over_a_shared_prefix_suits_the_device(
    device: str, dtype: str, width: int, name: str | None
) -> None:
    assert fused_attention_name(device, dtype, width) == name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_has_these_operations_with_such_results(dtype: torch.dtype) -> None:
    """On tensors without numbers: the operations of a GPU cannot run here."""
    asked = torch.empty((1, 2, 45, 64), dtype=dtype, device="meta")
    keys = torch.empty((1, 2, 70, 64), dtype=dtype, device="meta")
    name = fused_attention_name("cuda", str(dtype), 64)
    assert name is not None
    over_all = attend_all_keys(name, asked, keys, keys)
    assert over_all is not None
    found, sums = over_all
    assert found.shape == asked.shape
    assert (sums.shape, sums.dtype) == ((1, 2, 45), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("keys", [70, 200])
def test_many_queries_of_a_row_attend_to_its_own_keys_by_efficient_attention(
    dtype: torch.dtype, keys: int
) -> None:
    """On tensors without numbers: the operations of a GPU cannot run here."""
    asked, own = (torch.empty((3, 2, count, 64), dtype=dtype, device="meta") for count in (3 * keys, keys))
    mask = torch.empty((3, 1, 3 * keys, keys), dtype=dtype, device="meta")
    found, sums = attend_own_keys("flash_attention", asked, own, own, mask)
    assert (found.shape, found.dtype) == (asked.shape, dtype)
    assert (sums.shape, sums.dtype) == ((3, 2, 3 * keys), torch.float32)


def test_products_over_own_keys_are_what_the_operation_gives() -> None:
    torch.manual_seed(0)
    asked, keys, values = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 9, 8), torch.randn(3, 2, 9, 8)
    mask = torch.zeros(3, 1, 4, 9)
    mask[1, :, :, 5:] = torch.finfo(torch.float32).min
    for found, expected in zip(
        attend_own_keys("flash_attention", asked, keys, values, mask),
        attend_own_keys("flash_attention_for_cpu", asked, keys, values, mask),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)
