"""Whether another way of computing logits is as right as the plain one: tried on a probe, never assumed.

In float32 two right ways differ by little, and a bound says by how much at most. In half precision they differ by their
rounding, which may be as large as what a fault does (SmolLM2-135M in bfloat16: 2 in a logit), so there are two rules:

- in float32 arithmetic (``in_float32``) with the same weights, both ways agree within float32's bound: a wrong mask,
  position, cache or branch shows as clearly as in float32;
- in the model's own type, the way's error against float32 is at most ``FACTOR`` times the plain way's (root of the mean
  square over all logits of the probe): what it computes in between is as precise.

A model whose code cannot be computed in float32 arithmetic is held to a bound of its type, in which a fault may hide
and which a right way may miss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.engines.transformers.compat import is_out_of_memory
from harness.engines.transformers.in_float32 import HALF, in_float32

if TYPE_CHECKING:
    import torch

Way: TypeAlias = "Callable[[], torch.Tensor]"
"""Computes float32 logits [places, vocabulary] of the probe."""

Apart: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], float]"
"""How far the logits of two ways are apart, in the unit of the bound."""

BOUND: Final = {"torch.float32": 1e-3, "torch.float16": 5e-2, "torch.bfloat16": 2e-1}
"""Largest difference between two ways of computing a logit that is taken for rounding, by number type; of other types
as for float32."""

FACTOR: Final = 2.0
"""Right ways of 20 architectures: 0.7 to 1.3 times the plain way's error (docs/performance.md)."""

CANNOT: Final = (
    *(RuntimeError, ValueError, IndexError, TypeError),
    *(AttributeError, KeyError, AssertionError, NotImplementedError),
)
"""What a model's code raises in a probe when it cannot go the way that is tried."""


def largest(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference of a logit; NaN where one is NaN."""
    return float(_off(found, expected).abs().max())


def difference(
    model: Any, plain: Way, other: Way, *, apart: Apart = largest, what: str = "a logit", most: float = 1.0
) -> str | None:
    """None where the other way is as right as the plain one, else what is different, or what the model's code raised.

    ``most``: how many logits there are in what ``apart`` measures. Raises what the plain way raises, and where memory
    runs out.
    """
    expected = plain()
    try:
        found = other()
    except CANNOT as error:
        if is_out_of_memory(error):
            raise
        return f"the model raised {type(error).__name__}"
    assert found.shape == expected.shape, "both ways give the same logits"
    off, exact = apart(found, expected), BOUND["torch.float32"] * most
    if off <= exact or str(model.dtype) not in HALF:
        return None if off <= exact else f"{what} is {off:.2g} off"
    try:
        with in_float32():
            expected_exactly, found_exactly = plain(), other()
    except CANNOT as error:
        if is_out_of_memory(error):
            raise
        reason = f"{what} is {off:.2g} off, and float32 arithmetic raised {type(error).__name__}"
        return None if off <= BOUND[str(model.dtype)] * most else reason
    off = apart(found_exactly, expected_exactly)
    if not off <= exact:
        return f"{what} is {off:.2g} off in float32 arithmetic"
    return _coarser(found, expected, expected_exactly)


def _coarser(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> str | None:
    """What is wrong with the rounding of the logits found, None where they are as near to the exact ones as those
    expected."""
    usual, error = (root_mean_square(logits, exact) for logits in (expected, found))
    if error <= max(FACTOR * usual, BOUND["torch.float32"]):
        return None
    return f"its error is {error:.2g}, {error / max(usual, 1e-9):.1f} times that of a text by itself"


def root_mean_square(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the differences of all logits."""
    return float(_off(found, expected).double().square().mean().sqrt())


def _off(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Differences, 0 where both are the same infinity."""
    import torch

    return torch.where(found == expected, torch.zeros_like(found), found - expected)
