"""Buffers that grow and shrink where they lie, and take memory only for what is written."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from pytest_touchstone.engines.settings import resident_bytes
from pytest_touchstone.engines.transformers.cpu.memory import (
    GrowingHeap,
    paged_zeros,
    release_rows,
    supports_paged_tensors,
)
from pytest_touchstone.engines.transformers.kv_cache import KeyValues, SlotCache

HEADS, WIDTH = 3, 64
TYPES = [torch.float32, torch.bfloat16, torch.float16]

linux = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")


def tokens(first: int, count: int, rows: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return keys [rows, heads, count, width] of so many tokens, each with numbers of its own."""
    places = torch.arange(first, first + count, dtype=torch.float32)
    rows_ = torch.arange(rows, dtype=torch.float32)[:, None] * 1000
    return (rows_ + places)[:, None, :, None].expand(rows, HEADS, count, WIDTH).to(dtype)


def filled(rows: int, count: int, dtype: torch.dtype = torch.float32) -> SlotCache:
    """Return a cache of one layer with so many rows of ``count`` tokens."""
    cache = SlotCache(KeyValues())
    cache.set_write_target(0, rows, 0, count)
    cache.update(tokens(0, count, rows, dtype), -tokens(0, count, rows, dtype), 0)
    cache.lengths = [count] * rows
    return cache


@linux
def test_what_is_not_written_to_takes_no_memory() -> None:
    before = resident_bytes()
    found = paged_zeros(torch.zeros(1), (64, 2**20))  # 256 MiB
    found[3, :1000] = 1
    assert resident_bytes() - before < 2**24
    assert found[3].sum() == 1000
    assert found[4, :10].tolist() == [0] * 10


@linux
def test_rows_given_back_are_zeros_and_take_no_memory() -> None:
    found = paged_zeros(torch.zeros(1), (64, 2**18 + 100))  # rows that do not begin with a page
    found += 1
    before = resident_bytes()
    release_rows(found, 5)
    assert before - resident_bytes() > 50 * 2**20
    assert bool((found[:5] == 1).all())
    assert not found[5:].any()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 3), (40, 3, 700), (4, 2000, 0)])
def test_zeros_are_zeros_of_the_type_whatever_their_size(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    found = paged_zeros(torch.ones(1, dtype=dtype), shape)
    assert found.shape == shape
    assert found.dtype == dtype
    assert not found.any()
    release_rows(found, 1)
    assert not found.any()


@linux
def test_a_buffer_grows_where_it_lies_while_there_is_room() -> None:
    cache = filled(4, 100)
    ((keys, _),) = cache.layers.values()
    cache.reserve(8, 200)
    assert cache.layers[0][0].data_ptr() == keys.data_ptr()
    assert (cache.rows, cache.columns) == (8, 200)


@linux
def test_columns_to_spare_take_no_memory_when_a_buffer_moves() -> None:
    cache = filled(64, 1000)
    cache.reserve(64, 2000)
    assert len(cache.take(0, 2000)[0][0][0]) == 2000
    before = resident_bytes()
    cache.reserve(64, 20_000)
    # The tokens are 94 MiB; those that were to spare as much again.
    assert resident_bytes() - before < 2**25
    assert torch.equal(cache.take(63, 1000)[0][0], tokens(0, 1000, 64)[63])


@pytest.mark.parametrize("dtype", TYPES)
def test_no_token_changes_when_buffers_grow_and_shrink(dtype: torch.dtype) -> None:
    cache = filled(4, 100, dtype)
    for rows, columns in ((6, 170), (7, 300), (40, 301), (40, 1200)):
        cache.reserve(rows, columns)
        cache.set_write_target(0, 4, 0, 100)
        keys, values = cache.seen(0)
        assert torch.equal(keys, tokens(0, 100, 4, dtype))
        assert torch.equal(values, -keys)
    cache.drop(1)
    cache.trim()
    assert cache.rows == 3
    for slot, row in ((0, 0), (1, 3), (2, 2)):
        assert torch.equal(cache.take(slot, 100)[0][0], tokens(0, 100, 4, dtype)[row])


@pytest.mark.parametrize("dtype", TYPES)
def test_what_a_slot_never_held_is_zero_after_others_have_left_it(dtype: torch.dtype) -> None:
    cache = filled(9, 100, dtype)
    cache.lengths = [100] * 2
    cache.trim()
    cache.reserve(9, 120)
    cache.set_write_target(2, 7, 0, 120)
    keys, values = cache.seen(0)
    assert not keys.any()
    assert not values.any()


@pytest.mark.parametrize("dtype", TYPES)
def test_tokens_at_columns_of_their_own_are_written_where_their_rows_are(dtype: torch.dtype) -> None:
    cache = filled(3, 10, dtype)
    cache.set_write_target(0, 3, torch.tensor([[10], [4], [9]]), 11)
    cache.update(tokens(50, 1, 3, dtype), tokens(50, 1, 3, dtype), 0)
    keys, _ = cache.seen(0)
    for row, column in enumerate((10, 4, 9)):
        assert torch.equal(keys[row, :, column], tokens(50, 1, 3, dtype)[row, :, 0])


def test_other_devices_have_no_such_pages() -> None:
    assert not supports_paged_tensors(torch.device("cuda"))
    assert not supports_paged_tensors(torch.device("meta"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says what a process has")
def test_the_heap_is_trimmed_only_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([500, 510, 480, 590, 700, 620, 650, 680, 730, 600])
    trimmed: list[Any] = []
    module = "pytest_touchstone.engines.transformers.cpu.memory"
    monkeypatch.setattr(f"{module}.resident_bytes", lambda: next(sizes) * 2**20)
    monkeypatch.setattr(f"{module}.trim_heap", trimmed.append)
    heap = GrowingHeap(torch.device("cpu"))
    counts = []
    for _ in range(8):
        heap.trim()
        counts.append(len(trimmed))
    # 590 is 110 above 480, and trimming leaves 700; 620 is the smallest after that, and 730 is 110 above it.
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2]
    GrowingHeap(torch.device("cuda")).trim()
    assert len(trimmed) == 2
