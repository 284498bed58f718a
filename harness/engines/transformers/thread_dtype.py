"""transformers' default number type, set for one thread instead of for the whole process.

While transformers makes the parts of a model it sets the type that they are to have as torch's default, for all
threads. A model that computes meanwhile could make numbers of that type by accident. Within ``for_this_thread`` the
type is given to every call of this thread that makes numbers and names none, which is what a default type does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

_ALWAYS: Final = ("empty", "zeros", "ones", "rand", "randn", "eye", "linspace", "logspace")
"""Functions of torch that make numbers of the default type."""

_OF_FLOATS: Final = ("tensor", "full", "arange", "range", "scalar_tensor")
"""Functions that do where they are given Python's numbers with a point."""


@contextmanager
def for_this_thread() -> Iterator[None]:
    """transformers sets the type for the calling thread alone; one thread may be in here at a time."""
    from transformers import modeling_utils

    before = modeling_utils.local_torch_dtype
    modeling_utils.local_torch_dtype = _of_type
    try:
        yield
    finally:
        modeling_utils.local_torch_dtype = before


def as_made(model: Any) -> bool:
    """Whether all tensors of a model that was made that way have the types and shapes that transformers gives them
    otherwise: a part that none of the functions above has made would stand out."""
    import torch

    with torch.device("meta"):
        usual = type(model)._from_config(copy.deepcopy(model.config), dtype=model.dtype)
    return _kinds(model) == _kinds(usual)


def _kinds(model: Any) -> dict[str, tuple[Any, Any]]:
    return {
        name: (tensor.shape, tensor.dtype)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }


def _of_type(dtype: torch.dtype, *_: Any, **__: Any) -> AbstractContextManager[Any]:
    import torch
    from torch.overrides import TorchFunctionMode

    always = {getattr(torch, name) for name in _ALWAYS}
    of_floats = {getattr(torch, name) for name in _OF_FLOATS}

    class OfType(TorchFunctionMode):
        """Names the type where none is named."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            del types
            given = kwargs or {}
            if given.get("dtype") is None:
                if func in always:
                    return func(*args, **{**given, "dtype": dtype})
                if func in of_floats and not any(hasattr(one, "dtype") for one in args):
                    made = func(*args, **given)
                    return made.to(dtype) if made.dtype == torch.get_default_dtype() else made
            return func(*args, **given)

    return OfType()
