"""What is kept of a prefix is its own keys and values, dense, and nothing that they were computed beside."""

from __future__ import annotations

import pytest
import torch

from pytest_touchstone.engines.transformers.kv_cache import EndedRow, KeyValues, PrefixSharedCache

HEADS, TOKENS, WIDTH = 2, 7, 4


def test_kept_keys_and_values_do_not_hold_the_tensor_of_which_they_were_a_view() -> None:
    computed = torch.randn(1, TOKENS, 5 * HEADS, WIDTH)
    keys, values = (computed[:, :, first : first + HEADS].transpose(1, 2) for first in (HEADS, 2 * HEADS))
    cache = PrefixSharedCache(KeyValues(), record=True)
    cache.update(keys, values, 0)
    made = cache.made(tuple(range(TOKENS)))
    for kept, expected in zip(made.layers[0], (keys, values), strict=True):
        assert torch.equal(kept, expected)
        assert kept.is_contiguous()
    assert sum(part.untyped_storage().nbytes() for part in made.layers[0]) == made.bytes


@pytest.mark.parametrize("past", [0, 3, TOKENS])
def test_any_tokens_of_an_ended_text_are_taken_from_its_prefix_and_its_slot(past: int) -> None:
    whole = torch.randn(2, HEADS, TOKENS, WIDTH)
    prefix = KeyValues(tuple(range(past)), ((whole[:1, :, :past], whole[1:, :, :past]),) if past else ())
    row = EndedRow(tuple(range(TOKENS)), prefix, [(whole[0, :, past:], whole[1, :, past:])])
    for begin in range(TOKENS):
        for end in range(begin, TOKENS + 1):
            ((keys, values),) = row.between(begin, end)
            assert torch.equal(keys, whole[0, :, begin:end])
            assert torch.equal(values, whole[1, :, begin:end])
    made = row.cropped(5, torch.bfloat16)
    assert made.tokens == tuple(range(5))
    assert torch.equal(made.layers[0][0], whole[:1, :, :5].bfloat16())
