"""A test, on a probe, that another way of computing logits is as correct as the plain one.

In float32 two correct ways differ by little, and a bound limits the difference. In half precision they differ by their
rounding, which may be as large as the effect of a fault (SmolLM2-135M in bfloat16: 0.6 in a logit). So there are two
rules:

- In float32 arithmetic (``in_float32``) with the same weights, both ways agree within float32's bound. A wrong mask,
  position, cache or branch shows as clearly as in float32.
- In the model's own type, the way's error against float32 is at most ``FACTOR`` times the plain way's (root of the mean
  square over all logits of the probe). So its intermediate results are as precise.

In a mixture of experts, rounding sends a token now and then to another expert, in either way. The error at that place
is then up to 15 times as large as elsewhere. There, the error is the median over the places instead.

A model whose code cannot run in float32 arithmetic is held to a bound of its type. A fault may hide within that bound,
and a correct way may exceed it.

``KnownWays`` keeps the ways that a probe has admitted in the user's cache, so that later starts need no probe. They are
known by everything but the weights' values: the model's class, config and tensors' shapes, number type and device, the
versions of torch and transformers, and the code of this folder. What was refused is not remembered: it is tried again
at each start. A small model is always tried, since its probe takes no time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core import disk
from pytest_touchstone.core.files import read_json, write_atomic
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.compat import is_out_of_memory
from pytest_touchstone.engines.transformers.cpu import HALF, in_float32
from pytest_touchstone.engines.transformers.devices import bytes_of_weights, devices_of

if TYPE_CHECKING:
    import torch

Way: TypeAlias = "Callable[[], torch.Tensor]"
"""Computes float32 logits [places, vocabulary] of the probe."""

Apart: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], float]"
"""The distance between the logits of two ways, in the unit of the bound."""

BOUND: Final = {"torch.float32": 1e-3, "torch.float16": 5e-2, "torch.bfloat16": 2e-1}
"""The largest difference between two ways of computing a logit that counts as rounding, by number type.

Types that are not named have the bound of float32.
"""

FACTOR: Final = 2.0
"""The allowed error relative to the plain way's: correct ways have at most 1.4 (docs/performance.md)."""


class UnsupportedError(RuntimeError):
    """Says what it is in a model that does not support a way of computing."""


CANNOT: Final = (
    *(RuntimeError, ValueError, IndexError, TypeError),
    *(AttributeError, KeyError, AssertionError, NotImplementedError),
)
"""The exceptions that a model's code raises in a probe when it does not support the way that is tried."""


def largest(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference of a logit; NaN where one is NaN."""
    return float(_off(found, expected).abs().max())


def difference(
    model: Any, plain: Way, other: Way, *, apart: Apart = largest, what: str = "a logit", most: float = 1.0
) -> str | None:
    """Return None where the other way is as correct as the plain one, else the difference, or what the model's code
    raised.

    ``most`` is the number of logits in what ``apart`` measures. Raises what the plain way raises, and where memory
    runs out.
    """
    expected = plain()
    try:
        found = other()
    except CANNOT as error:
        if is_out_of_memory(error):
            raise
        return (
            str(error) if isinstance(error, UnsupportedError) else f"the model raised {type(error).__name__}"
        )
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
    return _coarser(found, expected, expected_exactly, by_place=_has_experts(model))


def _has_experts(model: Any) -> bool:
    """Return whether the model's config has a number of experts above 1."""
    config = getattr(model, "config", None)
    numbers = getattr(config.get_text_config(), "__dict__", {}) if config is not None else {}
    return any("experts" in name and isinstance(value, int) and value > 1 for name, value in numbers.items())


def _coarser(
    found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, *, by_place: bool
) -> str | None:
    """Return a sentence about the rounding of the logits found, None where they are as near to the exact ones as
    expected."""
    usual, error = (error_of(logits, exact, by_place=by_place) for logits in (expected, found))
    if error <= max(FACTOR * usual, BOUND["torch.float32"]):
        return None
    return f"its error is {error:.2g}, {error / max(usual, 1e-9):.1f} times that of a text by itself"


def error_of(found: torch.Tensor, exact: torch.Tensor, *, by_place: bool) -> float:
    """Return the root of the mean square of the differences over all logits, or the median of it over the places.

    NaN where a difference is NaN or infinite.
    """
    squares = _off(found, exact).double().square().mean(dim=-1)
    if not bool(squares.isfinite().all()):
        return math.nan
    return float((squares.median() if by_place else squares.mean()).sqrt())


def _off(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the differences, 0 where both are the same infinity."""
    import torch

    return torch.where(found == expected, torch.zeros_like(found), found - expected)


_LEAST: Final = 10_000_000
"""The number of parameters from which a model's probe is worth remembering."""

_MOST: Final = 1000
"""The number of models kept, the newest ones."""


class KnownWays:
    """The ways admitted for one model; nothing is remembered without a folder."""

    def __init__(self, model: Any, folder: Path | None) -> None:
        self._path = None if folder is None else folder / f"{_key(model)}.json"
        self._known = _read(self._path)

    def tried(self, way: str, probe: Callable[[], str | None]) -> str | None:
        """Return None where the way is known, or where the probe finds no difference; else the difference."""
        if way in self._known:
            return None
        if (different := probe()) is None:
            self._known.add(way)
            self._keep()
        return different

    def _keep(self) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # where nothing can be written, the next start probes again
            write_atomic(self._path, json.dumps(sorted(self._known | _read(self._path))))
            entries = sorted(self._path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for path in entries[:-_MOST]:
                disk.unlink(path)


def folder_for(model: Any) -> Path | None:
    """Return the folder of the user's cache, for a large model whose ways depend on this code and its versions alone.

    None for a small model, for one with code of its own, which may change, and for one that is no module of torch.
    """
    import torch

    if type(model).__module__.startswith("transformers_modules") or not isinstance(model, torch.nn.Module):
        return None
    size: Any = model.dtype.itemsize
    return cache_folder("ways") if bytes_of_weights(model) >= _LEAST * size else None


def _read(path: Path | None) -> set[str]:
    try:
        found = read_json(path) if path is not None else []
    except (OSError, ValueError):
        return set()
    return {way for way in found if isinstance(way, str)} if isinstance(found, list) else set()


def _key(model: Any) -> str:
    """Return a hash of all that the outcome of a probe depends on, but for the weights' values."""
    shapes = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in model.state_dict().items()]
    config = {name: value for name, value in model.config.to_dict().items() if "name_or_path" not in name}
    said = [
        *(type(model).__qualname__, str(model.dtype), getattr(model, "drafts", 0)),
        *(_device(model.device), *devices_of(model)[1:], version("torch"), version("transformers"), _code()),
    ]
    text = json.dumps(
        [said, config, model.config.get_text_config()._attn_implementation, shapes], default=str
    )
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _device(device: Any) -> str:
    import torch

    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)} {torch.version.cuda}"
    return f"{device.type} {cpu.description()}"


@functools.cache
def _code() -> str:
    digest = hashlib.sha256()
    for path in sorted(one for one in Path(__file__).parent.rglob("*") if one.suffix in (".py", ".c", ".h")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
