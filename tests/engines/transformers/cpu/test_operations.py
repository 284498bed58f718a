"""Products and small operations by the kernels are torch's up to rounding, for every shape."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers.cpu import kernels as operations
from pytest_touchstone.engines.transformers.cpu.kernels import kernels
from pytest_touchstone.engines.transformers.cpu.packing import BFloat16Kernels, NativeKernels
from pytest_touchstone.engines.transformers.fused_layers import apply_rotary

needs_halves = pytest.mark.skipif(
    not getattr(kernels(), "by_halves", False), reason="this processor does not multiply bfloat16 numbers"
)

pytestmark = pytest.mark.usefixtures("threads")

sizes = st.integers(1, 70)
types = st.sampled_from([torch.float32, torch.bfloat16])


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether numbers are those that are expected, in float32, up to one rounding to their own type."""
    most = 1e-5 * max(1.0, float(expected.abs().max())) + (
        expected.abs() * 2**-8 if found.itemsize == 2 else 0
    )
    return found.shape == expected.shape and bool(((found - expected).abs() <= most).all())


@given(rows=st.integers(1, 450), inner=sizes, outer=st.integers(1, 150), biased=st.booleans())
def test_products(rows: int, inner: int, outer: int, biased: bool) -> None:
    native, x, weight = NativeKernels(), numbers(rows, inner), numbers(outer, inner)
    bias = numbers(outer) if biased else None
    packed = native.packed(weight)
    assert close(native.product(x, packed, bias, (outer, inner)), torch.nn.functional.linear(x, weight, bias))
    assert torch.equal(native.plain(packed, (outer, inner)), weight)


@given(rows=st.integers(2, 60), some=st.sampled_from([1, 12, 13, 17]), inner=sizes, outer=sizes)
def test_a_row_is_the_same_whatever_is_beside_it(rows: int, some: int, inner: int, outer: int) -> None:
    """Products of few rows and of more may go by different units of the processor."""
    native, most = NativeKernels(), 12 if some <= 12 else 1000
    x = numbers(min(max(rows, some), most), inner)
    packed = native.packed(numbers(outer, inner))
    together = native.product(x, packed, None, (outer, inner))
    for first in range(0, len(x) - some + 1, some):
        apart = native.product(x[first : first + some], packed, None, (outer, inner))
        assert torch.equal(together[first : first + some], apart)


@given(
    rows=st.integers(1, 40),
    inner=sizes,
    outer=st.integers(1, 150),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_products_with_weights_that_are_widened(
    rows: int, inner: int, outer: int, dtype: torch.dtype
) -> None:
    native, x, weight = NativeKernels(str(dtype)), numbers(rows, inner), numbers(outer, inner).to(dtype)
    packed = native.packed(weight)
    found = native.product(x, packed, None, (outer, inner))
    assert close(found, torch.nn.functional.linear(x, weight.float()))
    assert packed.dtype == dtype
    assert torch.equal(native.plain(packed, (outer, inner)), weight)
    by_twelve = [native.product(part, packed, None, (outer, inner)) for part in x.split(12)]
    assert torch.equal(found, torch.cat(by_twelve))


def test_weights_of_half_precision_may_be_small_infinite_or_nan() -> None:
    kinds = [5.96e-8, -6.1e-5, 0.0, -0.0, torch.inf, -torch.inf, torch.nan, 65504.0]
    weight = torch.tensor(kinds, dtype=torch.float16).view(-1, 1)
    for dtype in (torch.float16, torch.bfloat16):
        native = NativeKernels(str(dtype))
        given_weight = weight.to(dtype)
        found = native.product(torch.ones(1, 1), native.packed(given_weight), None, (len(kinds), 1))
        assert torch.equal(found.view(-1).nan_to_num(7), given_weight.float().view(-1).nan_to_num(7))


@needs_halves
@given(rows=st.integers(1, 300), inner=sizes, outer=st.integers(1, 150), biased=st.booleans())
def test_products_in_bfloat16(rows: int, inner: int, outer: int, biased: bool) -> None:
    halves, x, weight = BFloat16Kernels(), numbers(rows, inner).bfloat16(), numbers(outer, inner).bfloat16()
    bias = numbers(outer).bfloat16() if biased else None
    packed = halves.packed(weight)
    found = halves.product(x, packed, bias, (outer, inner))
    exact = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert found.dtype == torch.bfloat16
    assert bool(((found - exact).abs() <= 2**-8 * exact.abs() + 1e-5).all())
    assert torch.equal(halves.plain(packed, (outer, inner)), weight)


@needs_halves
def test_bfloat16_rows_with_nan_give_nan_and_no_others() -> None:
    halves, x, weight = BFloat16Kernels(), numbers(40, 50).bfloat16(), numbers(33, 50).bfloat16()
    x[7, 49] = torch.nan
    found = halves.product(x, halves.packed(weight), None, (33, 50)).isnan()
    assert found[7].all()
    assert found.sum() == 33


def test_products_of_rows_that_lie_apart() -> None:
    native, x, weight = NativeKernels(), numbers(3, 5, 40)[:, ::2, :33], numbers(50, 33)
    found = native.product(x, native.packed(weight), None, (50, 33))
    assert close(found, torch.nn.functional.linear(x, weight))


@given(rows=st.integers(1, 300), width=st.integers(1, 100), dtype=types)
def test_norms(rows: int, width: int, dtype: torch.dtype) -> None:
    norm = SimpleNamespace(weight=numbers(width).to(dtype), variance_epsilon=1e-5)
    states = numbers(rows, width).to(dtype)
    expected = torch.rms_norm(states.float(), (width,), norm.weight.float(), 1e-5)
    assert close(operations.rms_norm(states, norm), expected)


@given(rows=st.integers(1, 300), width=st.integers(1, 100), dtype=types)
def test_gates(rows: int, width: int, dtype: torch.dtype) -> None:
    both = (30 * numbers(rows, 2 * width)).to(dtype)
    gate, up = both.float().chunk(2, -1)
    assert close(operations.silu_gate(both), torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("copies", [1, 5])
def test_gates_at_the_ends_of_the_numbers(dtype: torch.dtype, copies: int) -> None:
    gates = torch.tensor([-3e38, -200.0, -88.5, -0.0, 88.5, 200.0, float("nan"), float("inf")] * copies)
    gates = gates.to(dtype)
    found = operations.silu_gate(torch.cat((gates, torch.ones_like(gates)))[None])[0]
    expected = torch.nn.functional.silu(gates)
    assert torch.allclose(found, expected, atol=1e-30, equal_nan=True)


@given(
    rows=st.integers(1, 40),
    tokens=st.integers(1, 5),
    heads=st.integers(1, 6),
    half=st.integers(1, 40),
    each=st.booleans(),
    dtype=types,
)
def test_rotations(rows: int, tokens: int, heads: int, half: int, dtype: torch.dtype, *, each: bool) -> None:
    states, count = numbers(rows, tokens, heads, 2 * half).to(dtype), max(1, heads - 1)
    cos, sin = (
        numbers(rows if each else 1, tokens, 2 * half + one)[..., : 2 * half].to(dtype) for one in (0, 1)
    )
    expected = apply_rotary(states[:, :, :count].float(), cos.float(), sin.float())
    rest = states[:, :, count:].clone()
    operations.apply_rotary(states, count, cos, sin)
    assert close(states[:, :, :count], expected)
    assert torch.equal(states[:, :, count:], rest)


@given(
    rows=st.integers(1, 40),
    keys=st.integers(1, 3),
    groups=st.integers(1, 3),
    half=st.integers(1, 40),
    dtype=types,
)
def test_rotations_after_norms_of_heads(
    rows: int, keys: int, groups: int, half: int, dtype: torch.dtype
) -> None:
    width, queries = 2 * half, keys * groups
    states = numbers(rows, 1, queries + 2 * keys, width).to(dtype)
    cos, sin = (numbers(1, 1, width + one)[..., :width].to(dtype) for one in (0, 1))
    norms = [(torch.nn.RMSNorm(width, dtype=dtype), count) for count in (queries, keys)]
    for at, (norm, _) in enumerate(norms):
        norm.weight = torch.nn.Parameter(numbers(width + at)[:width].to(dtype), requires_grad=False)
        norm.variance_epsilon = 1e-3  # type: ignore[assignment]
    rest, parts = states[:, :, -keys:].clone(), torch.split(states, [queries, keys, keys], dim=2)
    normed = [
        torch.rms_norm(part.float(), (width,), norm.weight.float(), 1e-3).to(dtype).float()
        for part, (norm, _) in zip(parts, norms, strict=False)
    ]
    expected = apply_rotary(torch.cat(normed, 2), cos.float(), sin.float())
    operations.apply_rotary(states, queries + keys, cos, sin, norms)
    # The norm is rounded before the rotation, and may be to the other side.
    most = (2e-5 if dtype == torch.float32 else 2e-2) * max(1.0, float(expected.abs().max()))
    assert float((states[:, :, :-keys].float() - expected).abs().max()) <= most
    assert torch.equal(states[:, :, -keys:], rest)


@given(
    rows=st.integers(1, 5),
    tokens=st.integers(1, 45),
    past=st.sampled_from([0, 1, 300]),
    heads=st.sampled_from([(1, 1), (6, 2), (5, 5), (9, 3)]),
    width=st.integers(1, 70),
    alike=st.booleans(),
    dtype=types,
)
def test_attention_of_passes(
    rows: int, tokens: int, past: int, heads: tuple[int, int], width: int, *, dtype: torch.dtype, alike: bool
) -> None:
    asked, (all_heads, own) = numbers(rows, tokens, heads[0], width).to(dtype).transpose(1, 2), heads
    keys, values = (
        numbers(rows, past + tokens, own + one, width)[:, :, one:].to(dtype).transpose(1, 2) for one in (0, 1)
    )
    seen = numbers(1 if alike else rows, 1, tokens, past + tokens) > 0.3
    seen[..., past:] |= torch.eye(tokens, dtype=torch.bool)  # a token sees itself
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    expected = torch.nn.functional.scaled_dot_product_attention(
        asked.float(), keys.float(), values.float(), mask.float(), scale=0.3, enable_gqa=all_heads != own
    )
    found = operations.attend(asked, (keys, values), mask, 0.3)
    assert found is not None
    assert close(found, expected.transpose(1, 2).flatten(2))


@given(
    texts=st.lists(
        st.tuples(st.integers(1, 40), st.lists(st.integers(1, 30), max_size=3)), min_size=1, max_size=5
    ),
    heads=st.sampled_from([(4, 4), (6, 2), (9, 3)]),
    dtype=types,
)
def test_attention_of_several_texts_in_a_row(
    texts: list[tuple[int, list[int]]], heads: tuple[int, int], dtype: torch.dtype
) -> None:
    total = sum(start + sum(ends) for start, ends in texts)
    seen, first = torch.zeros(total, total, dtype=torch.bool), 0
    for start, ends in texts:  # each end sees the start of its text, and itself
        place = first + start
        seen[first:place, first:place] = True
        for length in ends:
            seen[place : place + length, first : first + start] = True
            seen[place : place + length, place : place + length] = True
            place += length
        first = place
    seen = seen.tril()
    asked, (count, own) = numbers(2, total, heads[0], 24).to(dtype).transpose(1, 2), heads
    keys, values = (numbers(2, total, own + one, 24)[:, :, one:].to(dtype).transpose(1, 2) for one in (0, 1))
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[None, None]
    expected = torch.nn.functional.scaled_dot_product_attention(
        asked.float(), keys.float(), values.float(), mask.float(), scale=0.3, enable_gqa=count != own
    )
    found = operations.attend(asked, (keys, values), mask, 0.3)
    assert found is not None
    assert close(found, expected.transpose(1, 2).flatten(2))


def test_keys_that_are_not_seen_do_not_matter() -> None:
    asked, seen = numbers(1, 3, 40, 16), torch.zeros(40, 200, dtype=torch.bool)
    seen[:, 70:90] = seen[10:, 150:160] = True
    keys, values = numbers(1, 3, 200, 16), numbers(1, 3, 200, 16) + 1
    mask = torch.zeros(1, 1, 40, 200).masked_fill(~seen, torch.finfo(torch.float32).min)
    found = operations.attend(asked, (keys, values), mask, 1.0)
    hidden = ~seen.any(0)
    keys[..., hidden, :], values[..., hidden, :] = 1e30, -1e30
    again = operations.attend(asked, (keys, values), mask, 1.0)
    assert found is not None
    assert again is not None
    assert torch.equal(found, again)


@given(
    rows=st.integers(0, 30),
    width=st.integers(1, 100) | st.integers(8000, 9000),
    scale=st.sampled_from([0.1, 5, 60]),
)
def test_sums_of_exponentials(rows: int, width: int, scale: float) -> None:
    logits = scale * numbers(rows, width)
    sums, places = operations.log_sums(logits)
    assert torch.allclose(sums.double(), logits.double().logsumexp(-1), rtol=3e-7, atol=3e-6)
    assert torch.equal(places, logits.max(-1).indices if rows else places)


@pytest.mark.parametrize("place", [0, 5, 16, 39, 40])
@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan"), 3e38, -3e38])
def test_sums_of_exponentials_at_the_ends_of_the_numbers(odd: float, place: int) -> None:
    logits = numbers(3, 41)
    logits[1, place] = odd
    sums, places = operations.log_sums(logits)
    assert torch.allclose(sums, logits.logsumexp(-1), equal_nan=True)
    assert places.tolist() == logits.max(-1).indices.tolist()


def test_the_first_of_the_largest_and_of_what_is_no_number_is_taken() -> None:
    logits = torch.zeros(4, 60)
    logits[1, [20, 50]] = 2.0
    logits[2, [33, 40]] = torch.nan
    logits[2, 7], logits[3] = 9.0, -torch.inf
    sums, places = operations.log_sums(logits)
    assert places.tolist() == [0, 20, 33, 0]
    assert sums.isnan().tolist() == [False, False, True, False]
    assert sums[3] == -torch.inf


def test_attention_that_is_not_computed_here() -> None:
    asked, mask = numbers(1, 2, 3, 8), torch.zeros(1, 1, 3, 3)
    assert operations.attend(asked, (asked, asked), mask, 1.0) is not None
    assert operations.attend(asked, (asked, asked), None, 1.0) is None
    assert operations.attend(asked, (asked, asked[..., :4]), mask, 1.0) is None
    assert operations.attend(asked, (asked, asked), mask.to(torch.bfloat16), 1.0) is None
    assert operations.attend(asked, (asked, asked), torch.zeros(1, 2, 3, 3), 1.0) is None


def test_a_token_that_sees_nothing_finds_zeros() -> None:
    asked, mask = numbers(1, 2, 3, 8), torch.full((1, 1, 3, 3), torch.finfo(torch.float32).min)
    found = operations.attend(asked, (asked, asked), mask, 1.0)
    assert found is not None
    assert not found.any()


@pytest.mark.parametrize("rows", [1, 40])
def test_long_products_are_as_exact_as_torchs(rows: int) -> None:
    native, x, weight = NativeKernels(), numbers(rows, 6000), numbers(64, 6000)
    exact = x.double() @ weight.double().t()
    found = native.product(x, native.packed(weight), None, (64, 6000))
    off, usual = ((one - exact).square().mean() for one in (found, x @ weight.t()))
    assert off <= 1.5 * usual
