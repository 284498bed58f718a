"""Few tokens of each row attend to a prefix and its own keys as by one softmax over both."""

from __future__ import annotations

import pytest
import torch

from pytest_touchstone.engines.transformers.cpu import attention
from pytest_touchstone.engines.transformers.split_attention import attended, put_behind

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
        put_behind(key, (prefix[0], prefix[1]))
    found = attended(asked, (key, value), mask, SCALE).flatten(2)
    bound = 1e-5 if dtype is torch.float32 else 5e-2
    assert float((found.double() - expected).abs().max()) <= bound


def test_products_that_are_not_right_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention._by_onednn
    attention._products_are_right.cache_clear()
    try:
        monkeypatch.setattr(
            attention,
            "_by_onednn",
            lambda *given: (right(*given)[0] + 1e-3, right(*given)[1]),
        )
        assert not attention._products_are_right(torch.float32)
    finally:
        attention._products_are_right.cache_clear()
