"""What is kept of a prefix is its own keys and values, dense, and nothing that they were computed beside."""

from __future__ import annotations

import torch

from pytest_touchstone.engines.transformers.kv_cache import KeyValues, SharedPast

HEADS, TOKENS, WIDTH = 2, 7, 4


def test_kept_keys_and_values_do_not_hold_the_tensor_of_which_they_were_a_view() -> None:
    computed = torch.randn(1, TOKENS, 5 * HEADS, WIDTH)
    keys, values = (computed[:, :, first : first + HEADS].transpose(1, 2) for first in (HEADS, 2 * HEADS))
    cache = SharedPast(KeyValues(), record=True)
    cache.update(keys, values, 0)
    made = cache.made(tuple(range(TOKENS)))
    for kept, expected in zip(made.layers[0], (keys, values), strict=True):
        assert torch.equal(kept, expected)
        assert kept.is_contiguous()
    assert sum(part.untyped_storage().nbytes() for part in made.layers[0]) == made.bytes
