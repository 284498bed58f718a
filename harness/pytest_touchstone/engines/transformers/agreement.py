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

``VerifiedKernels`` keeps the ways that a probe has admitted in the user's cache, so that later starts need no probe.
They are known by everything but the weights' values: the model's class, config and tensors' shapes, number type and
device, the versions of torch and transformers, and the code of this folder. What was refused is not remembered: it is
tried again at each start. A small model is always tried, since its probe takes no time.

Another probe, run when a model is loaded, holds that an answer depends on its own text alone, and says which rows may
be computed in one pass (``IndependenceProbe``):

- **Later tokens.** A causal model's logits do not change with the tokens that come later. A model whose logits do
  (BERT without ``is_decoder``, ``is_causal: false``, XLNet) is none, and is refused.
- **Neighbours.** A row's logits are the same by itself, beside a longer row, and filled up with padding. Some models
  mix padding into a text (FNet's Fourier transform, the convolutions of ConvBERT, Funnel's pooling). Their rows are
  computed with others of the same length, or by themselves.
- **Length.** Rotary embeddings of the types ``longrope`` and ``dynamic`` are computed otherwise for all rows of a pass
  once one of them is longer than the length of the original training. Rows on both sides of it stay apart.
- **Earlier passes.** A few models stay changed by what they computed (BigBird takes another attention for good after
  a short text). They are put back into the state in which they were loaded before each pass.

Differences below the bounds, scaled down for models whose logits differ little, count as rounding.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import keep_newest, read_json, write_atomic
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


CANNOT: Final = (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError)
"""The exceptions that a model's code raises in a probe when it does not support the way that is tried."""


def largest_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference of a logit; NaN where one is NaN."""
    return float(_differences(actual, expected).abs().max())


def difference(
    model: Any,
    plain: Way,
    other: Way,
    *,
    apart: Apart = largest_difference,
    what: str = "a logit",
    most: float = 1.0,
) -> str | None:
    """Return None where another way of computing logits is as correct as the plain one, else the difference.

    Raises what the plain way raises, and errors of memory.

    Args:
        model: The model.
        plain: Computes the logits as the model's own code does.
        other: Computes the logits in the other way.
        apart: Measures the distance between logits.
        what: The name of what ``apart`` measures, for the message.
        most: The number of logits in what ``apart`` measures, by which the bound is multiplied.

    Returns:
        None, or the difference, or the error that the model's code raised.


    """
    expected = plain()
    try:
        actual = other()
    except CANNOT as error:
        if is_out_of_memory(error):
            raise
        return (
            str(error) if isinstance(error, UnsupportedError) else f"the model raised {type(error).__name__}"
        )
    assert actual.shape == expected.shape, "both ways give the same logits"
    off, exact = apart(actual, expected), BOUND["torch.float32"] * most
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
    by_place = _has_experts(model)
    usual_error = root_mean_square_error(expected, expected_exactly, by_place=by_place)
    other_error = root_mean_square_error(actual, expected_exactly, by_place=by_place)
    if other_error <= max(FACTOR * usual_error, BOUND["torch.float32"]):
        return None
    times = other_error / max(usual_error, 1e-9)
    return f"its error is {other_error:.2g}, {times:.1f} times that of a text by itself"


def _has_experts(model: Any) -> bool:
    """Return whether the model's config has a number of experts above 1."""
    config = getattr(model, "config", None)
    numbers = getattr(config.get_text_config(), "__dict__", {}) if config is not None else {}
    return any("experts" in name and isinstance(value, int) and value > 1 for name, value in numbers.items())


def root_mean_square_error(actual: torch.Tensor, exact: torch.Tensor, *, by_place: bool) -> float:
    """Return the root mean square error over all logits, or the median of it over the positions.

    NaN where a difference is NaN or infinite.
    """
    squares = _differences(actual, exact).double().square().mean(dim=-1)
    if not bool(squares.isfinite().all()):
        return math.nan
    return float((squares.median() if by_place else squares.mean()).sqrt())


def _differences(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the differences, 0 where both are the same infinity."""
    import torch

    return torch.where(actual == expected, torch.zeros_like(actual), actual - expected)


_LEAST: Final = 10_000_000
"""The number of parameters from which a model's probe is worth remembering."""

_MOST: Final = 1000
"""The number of models kept, the newest ones."""


class VerifiedKernels:
    """The fast computations that probes have verified for one model, kept in a folder if there is one."""

    def __init__(self, model: Any, folder: Path | None) -> None:
        self._path = None if folder is None else folder / f"{_model_key(model)}.json"
        self._known = _read_verified(self._path)

    def tried(self, way: str, probe: Callable[[], str | None]) -> str | None:
        """Return None where the way is verified already, or by the probe now; else the difference."""
        if way in self._known:
            return None
        if (different := probe()) is not None:
            return different
        self._known.add(way)
        if self._path is not None:
            with suppress(OSError):  # where nothing can be written, the next start probes again
                write_atomic(self._path, json.dumps(sorted(self._known | _read_verified(self._path))))
                keep_newest(self._path.parent, "*.json", _MOST)
        return None


def folder_for(model: Any) -> Path | None:
    """Return the cache folder of verified ways for a large model of Transformers or torch.

    None for a small model, for one with code of its own, which may change, and for one that is not a torch module.
    """
    import torch

    if type(model).__module__.startswith("transformers_modules") or not isinstance(model, torch.nn.Module):
        return None
    size: Any = model.dtype.itemsize
    return cache_folder("ways") if bytes_of_weights(model) >= _LEAST * size else None


def _read_verified(path: Path | None) -> set[str]:
    """Return the verified ways in a file; none where it is missing or damaged."""
    with suppress(OSError, ValueError):
        ways = read_json(path) if path is not None else []
        return {way for way in ways if isinstance(way, str)} if isinstance(ways, list) else set()
    return set()


def _model_key(model: Any) -> str:
    """Return a hash of all that a probe depends on, except the values of the weights."""
    import torch

    shapes = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in model.state_dict().items()]
    config = {name: value for name, value in model.config.to_dict().items() if "name_or_path" not in name}
    device = f"{model.device.type} {cpu.describe_cpu()}"
    if model.device.type == "cuda":
        device = f"cuda {torch.cuda.get_device_name(model.device)} {torch.version.cuda}"
    facts = [
        *(type(model).__qualname__, str(model.dtype), getattr(model, "drafts", 0)),
        *(device, *devices_of(model)[1:], version("torch"), version("transformers"), hash_code()),
        *(config, model.config.get_text_config()._attn_implementation, shapes),
    ]
    text = json.dumps(facts, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


@functools.cache
def hash_code() -> str:
    """Return a hash of the code of this folder."""
    digest = hashlib.sha256()
    for path in sorted(
        path for path in Path(__file__).parent.rglob("*") if path.suffix in (".py", ".c", ".h")
    ):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


_LONG: Final = 24
_SHORT: Final = 9
"""The tokens of the probe's two rows: beyond small windows and kernels, and cheap."""

_PARTS_OF_TEXTS: Final = ("window", "chunk", "block", "segment", "local", "bucket", "original_max")
"""Words in the names of settings that say how many tokens a model sees at once; what it mixes may show only beyond."""

_CHEAP: Final = 5e10
"""The most tokens times parameters of a probe's row: some seconds on a CPU, once."""

_FAR: Final = 2048
"""The most tokens of the row that tells whether a model stays changed by a short one; BigBird's change is at 704."""

_FAINTEST: Final = 0.01
"""The least share of the bound to which a model with faint logits is held: 1e-5."""

_LEAK: Final = 0.1
"""The share of the bound that later tokens may move a logit: both passes have the same shape, and so do their
roundings."""

_ROUNDINGS: Final = 256
"""The tokens in which a quantization that rounds activations shows that it enlarges other roundings: in a small model,
few tokens have an activation near enough to the middle between two numbers."""

_NUDGE: Final = 1e-6
"""The relative difference between two ways of computing hidden states in float32."""

_ROUNDED: Final = 500
"""The share up to which a quantization that rounds by all tokens of a pass may move them: half of the logits' standard
deviation. LLM.int8() moves them by 0.03 to 0.05 of it; reading in both directions by more than all of it."""

Tokens: TypeAlias = "tuple[int, ...]"
Inputs: TypeAlias = "Callable[[Sequence[Tokens]], dict[str, Any]]"
"""Makes the model's arguments for rows of tokens, filled up with padding."""


@dataclass(frozen=True, slots=True)
class BatchingConstraint:
    """The rows that may be computed in one pass.

    Attributes:
        rows: Any rows, those of equal length, or one.
        boundary: The number of tokens above which rows stay apart from shorter ones.
        by_length: Whether rows above the boundary also stay apart from those of another length.
        reason: Why rows are kept apart; empty where they are not.


    """

    rows: Literal["any", "equal", "one"] = "any"
    boundary: int | None = None
    by_length: bool = False
    reason: str = ""

    def group(self, length: int) -> int:
        """Return a key that is equal for the lengths of rows that may be computed together."""
        if self.rows != "any":
            return length
        if self.boundary is None or length <= self.boundary:
            return 0
        return length if self.by_length else 1


ANY: Final = BatchingConstraint()


class LoadedState:
    """A model's state before its first pass: attributes, buffers and submodules of all its modules."""

    def __init__(self, model: Any) -> None:
        self._modules = list(model.modules()) if hasattr(model, "modules") else []
        self._tables = [_tables(module) for module in self._modules]

    @property
    def changed(self) -> bool:
        """Return whether a module has other attributes, buffers or parts than then."""

        def differ(before: Any, now: Any) -> bool:
            comparable = type(before) is type(now) and isinstance(before, (str, int, float, tuple))
            return before is not now and not (comparable and before == now)

        return any(
            before.keys() != now.keys() or any(differ(before[name], now[name]) for name in before)
            for tables, module in zip(self._tables, self._modules, strict=True)
            for before, now in zip(tables, _tables(module), strict=True)
        )

    def restore(self, *_: Any) -> None:
        """Put all of it back. Tensors that were changed in place stay as they are."""
        for (attributes, *parts), module in zip(self._tables, self._modules, strict=True):
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for name, table in zip(_PARTS, parts, strict=True):
                module.__dict__[name].clear()
                module.__dict__[name].update(table)


_PARTS: Final = ("_parameters", "_buffers", "_modules")


def _tables(module: Any) -> list[dict[str, Any]]:
    return [dict(module.__dict__), *(dict(module.__dict__[name]) for name in _PARTS)]


class IndependenceProbe:
    """Probes one loaded model; ``inputs`` makes its arguments from rows of tokens."""

    def __init__(
        self, model: Any, inputs: Inputs, *, path: Path, vocabulary: int, seq_len: int, ways: VerifiedKernels
    ) -> None:
        self._model, self._inputs, self._path, self._ways = model, inputs, path, ways
        self._vocabulary, self._seq_len = vocabulary, seq_len
        quantized = getattr(model, "hf_quantizer", None) is not None
        self._quantization = (
            f"its quantization ({model.config.quantization_config.quant_method})" if quantized else None
        )
        self._short, self._long = self._row(_SHORT), self._row(max(_LONG, self._named_length()), first=3)
        # Engines of a base and its adapters have one model; only the first one meets it as it was loaded.
        self._state: LoadedState = getattr(model, "_state_as_loaded", None) or LoadedState(model)

    def company(self, *, causal: bool) -> BatchingConstraint:
        """Return the rows that may be computed together.

        Raises:
            CheckpointError: If the logits carry no information, or change with later tokens in a ``causal`` model.

        """
        self._check_informative(self._logits([self._short], [0]))
        stays_changed = self._state.changed and self._changed_for_good()
        boundary, by_length = length_boundary(self._model)
        if stays_changed or (by_length and boundary is not None and self._seq_len > boundary):
            self._restore_before_each_pass()
        mixed = self._check_causal(self._long) if causal else None
        if causal and stays_changed:
            self._check_causal(self._row(_FAR))
        if mixed is not None:
            return BatchingConstraint("one", reason=mixed)
        if stays_changed:
            return BatchingConstraint(
                "equal", reason="a pass over a short text changes how it computes a longer one"
            )
        if self._quantization is not None and (why := self._enlarged()) is not None:
            return BatchingConstraint(
                "one", reason=f"{self._quantization} rounds activations, by which rounding grows ({why})"
            )
        company = BatchingConstraint()
        if self._mixes("any") is not None:
            self._check_repeatable()
            if self._mixes("equal") is None:
                company = BatchingConstraint(
                    "equal", reason="the padding beside a longer text changes its logits"
                )
            else:
                company = BatchingConstraint("one", reason="other texts in the same pass change its logits")
        if boundary is None or self._seq_len <= boundary:
            return company
        reason = f"its positions are computed otherwise in texts of more than {boundary} tokens"
        return replace(company, boundary=boundary, by_length=by_length, reason=company.reason or reason)

    def _row(self, length: int, first: int = 5) -> Tokens:
        return tuple(
            (11 * number + first) % min(self._vocabulary, 997) for number in range(min(length, self._seq_len))
        )

    def _named_length(self) -> int:
        """Return a length that exercises what the config and the quantization depend on; 0 if too slow.

        It is beyond the longest window, chunk or block that the config names.
        """
        config = getattr(self._model.config.get_text_config(), "__dict__", {})
        named = [value for name, value in config.items() if any(word in name for word in _PARTS_OF_TEXTS)]
        flat = [length for value in named for length in (value if isinstance(value, list) else [value])]
        parameters = getattr(self._model, "num_parameters", lambda: 0)()
        if self._quantization is not None:
            flat.append(_ROUNDINGS)
        lengths = [1 + length for length in flat if type(length) is int and 0 < length < self._seq_len]
        return max((length for length in lengths if length * parameters <= _CHEAP), default=0)

    def _logits(self, rows: Sequence[Tokens], wanted: Sequence[int]) -> torch.Tensor:
        """Return the float32 logits [tokens, vocabulary] of the wanted rows, without those of padding."""
        import torch

        with torch.inference_mode():
            logits = self._model(**self._inputs(rows)).logits
            return torch.cat([logits[row, : len(rows[row])].float() for row in wanted])

    def _check_informative(self, logits: torch.Tensor) -> None:
        """Raise ``CheckpointError`` where all tokens, or all positions of a text, have the same logits."""
        reason = None
        if bool((logits == logits[:, :1]).all()):
            reason = f"its logits are {float(logits[0, 0]):.3g} for every token of the vocabulary"
        elif len(logits) > 1 and bool((logits == logits[:1]).all()):
            reason = "its logits are the same after every text"
        if reason is not None:
            raise CheckpointError(
                f"{self._path}: {reason}, so its answers mean nothing; its weights are empty, or were not "
                "saved: save the model again"
            )

    def _check_causal(self, row: Tokens) -> str | None:
        """Check that the second half of a row does not change the logits of the first.

        Returns:
            None, or the reason to compute rows alone: a quantization that rounds by all tokens of a pass.

        Raises:
            CheckpointError: If the logits change for another reason.


        """
        half = len(row) // 2
        if not half:
            return None
        later = tuple((token + 7) % min(self._vocabulary, 997) for token in row[half:])

        def leaked(share: float) -> str | None:
            return self._difference(
                lambda: self._logits([row], [0])[:half],
                lambda: self._logits([row[:half] + later], [0])[:half],
                share=share,
            )

        different = self._ways.tried(f"without the future of {len(row)} tokens", lambda: leaked(_LEAK))
        if different is None:
            return None
        self._check_repeatable()
        if self._quantization is not None and leaked(_ROUNDED) is None:
            return f"{self._quantization} rounds by all tokens of a pass ({different} when only later ones change)"
        raise CheckpointError(
            f"{self._path}: its tokens see later ones ({different} when only later tokens of a text change), so it is "
            f"no causal model, and neither likelihoods nor texts can be had of it: {bidirectional_by(self._model)}"
        )

    def _mixes(self, rows: Literal["any", "equal"]) -> str | None:
        """Return by how much a row's neighbours change its logits; None where they do not."""
        second = self._long if rows == "any" else self._row(len(self._short), first=3)

        def alone() -> torch.Tensor:
            import torch

            return torch.cat([self._logits([self._short], [0]), self._logits([second], [0])])

        def beside(order: Sequence[int]) -> str | None:
            pair = [(self._short, second)[number] for number in order]
            return self._difference(alone, lambda: self._logits(pair, [order.index(0), order.index(1)]))

        return self._ways.tried(f"beside {rows} rows", lambda: beside((0, 1)) or beside((1, 0)))

    def _enlarged(self) -> str | None:
        """Return by how much small changes of the embeddings move the logits; None where it counts as rounding.

        A layer that rounds its inputs to 8 bits makes a step of the least difference between two ways of computing.
        Half precision has no such small differences: what it rounds is held to its own bound.
        """
        import torch

        def rounded(_module: Any, _given: Any, hidden: torch.Tensor) -> torch.Tensor:
            numbers = torch.Generator().manual_seed(1)
            signs = torch.randint(-1, 2, hidden.shape, generator=numbers).to(hidden.device, hidden.dtype)
            return torch.addcmul(hidden, hidden, signs, value=_NUDGE)

        def otherwise() -> torch.Tensor:
            hook = self._model.get_input_embeddings().register_forward_hook(rounded)
            try:
                return self._logits([self._long], [0])
            finally:
                hook.remove()

        return self._ways.tried(
            "roundings", lambda: self._difference(lambda: self._logits([self._long], [0]), otherwise)
        )

    def _check_repeatable(self) -> None:
        """Raise ``CheckpointError`` where two equal passes give different logits."""

        def logits() -> torch.Tensor:
            return self._logits([self._short], [0])

        if (different := self._difference(logits, logits)) is not None:
            raise CheckpointError(
                f"{self._path}: {different} between two passes over the same text, so its scores are drawn by "
                "chance; fix what it draws in its config (such as a hash_seed)"
            )

    def _changed_for_good(self) -> bool:
        """Return whether a pass over a short row changes the logits of a later long one."""
        far = self._row(_FAR)

        def fresh() -> torch.Tensor:
            self._state.restore()
            return self._logits([far], [0])

        def after() -> torch.Tensor:
            self._state.restore()
            self._logits([self._short], [0])
            return self._logits([far], [0])

        return self._difference(fresh, after) is not None

    def _restore_before_each_pass(self) -> None:
        if getattr(self._model, "_state_as_loaded", None) is None:
            self._state.restore()
            self._model._state_as_loaded = None  # an attribute that the state has too
            self._state = LoadedState(self._model)
            self._model._state_as_loaded = self._state
            self._model.register_forward_pre_hook(self._state.restore)

    def _difference(
        self, plain: Callable[[], torch.Tensor], other: Callable[[], torch.Tensor], *, share: float = 1.0
    ) -> str | None:
        """Return how far two ways of computing logits are apart, None where that is rounding.

        Logits that hold NaN are not compared: answers that need them are refused.
        """
        first = plain()
        if bool(first.isnan().any()):
            return None
        ready = [first]
        most = max(_FAINTEST, share * min(1.0, float(first[first.isfinite()].std())))
        return difference(self._model, lambda: ready.pop() if ready else plain(), other, most=most)


def length_boundary(model: Any) -> tuple[int | None, bool]:
    """Return the length from which rotary positions change, and whether they change with each length.

    None where they are the same at every length.
    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    boundaries: list[tuple[int, bool]] = []
    for table in (rope, *(table for table in rope.values() if isinstance(table, dict))):
        kind = str(table.get("rope_type", ""))
        if "dynamic" in kind or kind == "longrope":
            original = table.get("original_max_position_embeddings")
            if original is None or "dynamic" in kind:
                original = getattr(config, "max_position_embeddings", None)
            boundaries.append((int(original or 0), "dynamic" in kind))
    if not boundaries:
        return None, False
    return min(length for length, _ in boundaries), any(anew for _, anew in boundaries)


_BIDIRECTIONAL: Final = (
    ("is_causal", (False,)),
    ("use_bidirectional_attention", (True, "all")),
    ("causal", (False,)),
    ("attn_type", ("bi",)),
    ("is_decoder", (False,)),
)
"""Fields of a config, and the values by which tokens see later ones, the plainest first."""


def bidirectional_by(model: Any) -> str:
    """Name the config field that makes a model bidirectional, with the remedy, for an error message."""
    config = model.config.get_text_config()
    for name, values in _BIDIRECTIONAL:
        value = getattr(config, name, None)
        if any(type(value) is type(bidirectional) and value == bidirectional for bidirectional in values):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            return f"{name} is {shown} in its config.json; give a model that was trained as a causal one"
    return f"{type(model).__name__} reads texts in both directions; give a causal model"
