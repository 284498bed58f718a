"""Float32 arithmetic with the weights of a model in half precision, which stay as they are.

Within ``in_float32``, each function of torch that this thread calls gets float32 copies of its half-precision
arguments, and returns float32. The copies are made for that call alone. So the model's own code computes what it
would with float32 weights of the same values, whatever its parts are, without a copy of the model or a list of
modules.

At most one weight is in memory twice at any time: of linear layers a block of ``_BLOCK`` numbers, of tables the rows
looked up. It is meant for probes, since a block is converted again for each use.

Code behind Python's functions (such as a compiled kernel or packed weights) computes as usual, or raises its usual
error when types do not match.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

HALF: Final = ("torch.bfloat16", "torch.float16")
"""Types that are computed in float32, as torch names them."""

_BLOCK: Final = 1 << 18
"""The numbers of a weight that are converted at once: a mebibyte, which stays in a core's cache."""


@contextmanager
def in_float32() -> Iterator[None]:
    """Compute in float32, within the block and this thread, what would be computed in half precision."""
    import torch
    from torch.overrides import TorchFunctionMode

    linear, embedding = torch.nn.functional.linear, torch.nn.functional.embedding
    lookups = (embedding, torch.Tensor.__getitem__, torch.Tensor.index_select, torch.index_select)

    class InFloat32(TorchFunctionMode):
        """Widens arguments and results."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            del types
            given = kwargs or {}
            if getattr(func, "__name__", "") == "__get__" or func in lookups:
                return _wide(func(*args, **given))  # reads a weight as it is: its attributes, some rows
            if func is linear and _by_blocks(*args, **given):
                return _linear(*_wide(args[:1]), *args[1:], **given)
            return _wide(func(*_wide(args), **_wide(given)))

    with InFloat32():
        yield


def _wide(value: Any) -> Any:
    """Return a tensor or type of half precision as float32, also within lists and the like; anything else as it
    is."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.float() if str(value.dtype) in HALF else value
    if isinstance(value, torch.dtype):
        return torch.float32 if str(value) in HALF else value
    if type(value) in (list, tuple):
        return type(value)(_wide(part) for part in value)
    if type(value) is dict:
        return {name: _wide(part) for name, part in value.items()}
    return value


def _by_blocks(hidden: Any = None, weight: Any = None, _bias: Any = None, **more: Any) -> bool:
    """Return whether these are the arguments of a linear layer with a large weight in half precision."""
    import torch

    plain = type(weight) in (torch.Tensor, torch.nn.Parameter) and isinstance(hidden, torch.Tensor)
    return plain and not more and str(weight.dtype) in HALF and weight.dim() == 2 and weight.numel() > _BLOCK


def _linear(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return the layer's outputs [..., rows of the weight], computed some rows at a time."""
    import torch

    rows = max(1, _BLOCK // weight.shape[1])
    wide = hidden.new_empty((rows, weight.shape[1]))
    found = hidden.new_empty((*hidden.shape[:-1], weight.shape[0]))
    for first in range(0, weight.shape[0], rows):
        block = weight[first : first + rows]
        some = wide[: len(block)].copy_(block)
        found[..., first : first + rows] = torch.nn.functional.linear(hidden, some)
    return found if bias is None else found.add_(bias)
