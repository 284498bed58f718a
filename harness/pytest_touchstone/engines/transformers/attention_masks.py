"""Attention masks of rows that hold branches and of rows that are generated, and which models can take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.compat import layer_values
from pytest_touchstone.engines.transformers.independence import length_boundary

if TYPE_CHECKING:
    import torch

_KNOWN: Final = {"full_attention", "sliding_attention"}

_OTHER_WINDOWS: Final = ("attention_types", "attention_chunk_size", "attn_types", "block_types")
"""Settings of models that limit attention in special ways, by place in the row and not by position."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The kinds of layers that a model has, and how many tokens (itself included) a token of a sliding layer sees."""

    kinds: tuple[str, ...]
    window: int | None

    def masks(self, make: Callable[[int | None], torch.Tensor]) -> Any:
        """Return the mask for the model: one tensor, or one for each kind of layer, made for its window."""
        by_kind = {kind: make(self.window if kind == "sliding_attention" else None) for kind in self.kinds}
        return by_kind if len(by_kind) > 1 else by_kind[self.kinds[0]]


def attention_of(model: Any) -> Attention | str:
    """Return the model's form of attention, or the reason why it cannot take rows with branches."""
    config = model.config.get_text_config()
    implementation = getattr(config, "_attn_implementation", None)
    if implementation not in ("sdpa", "eager"):
        return f"its attention is {implementation}"
    if odd := [name for name in _OTHER_WINDOWS if any(layer_values(config, name))]:
        return f"it has {odd[0]}"
    if length_boundary(model)[0] is not None:
        return "its positions change with the length of the text"
    window, *others = layer_values(config, "sliding_window")
    if others:
        return "its layers have windows of several sizes"
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    kinds = tuple(sorted(set(getattr(config, "layer_types", None) or ())))
    if not set(kinds) <= _KNOWN:
        return f"it has layers of kind {next(kind for kind in kinds if kind not in _KNOWN)}"
    return Attention(kinds or ("sliding_attention" if window else "full_attention",), window)


def additive_mask(
    seen_until: torch.Tensor,
    *,
    positions: torch.Tensor,
    past: int,
    window: int | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return a mask [rows, 1, length, past + length]: 0 where a token sees another, else the lowest number of the
    type.

    A token sees all of the past. In its row it sees itself and its ancestors to the left: the tokens whose
    ``seen_until`` [rows, length] reaches beyond it. With a window it sees only those less than ``window`` positions
    back.
    """
    import torch

    device = positions.device
    rows, length = seen_until.shape
    column = torch.arange(length, device=device)
    seen = (column[:, None] >= column) & (column[:, None] < seen_until[:, None, :])
    if past:
        seen = torch.cat((torch.ones((rows, length, past), dtype=torch.bool, device=device), seen), dim=2)
    if window is not None:
        before = torch.arange(past, device=device).expand(rows, past)
        keys = torch.cat((before, positions), dim=1)
        seen &= positions[:, :, None] - keys[:, None, :] < window
    mask = torch.zeros(seen.shape, dtype=dtype, device=device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]


def slot_mask(
    attention_window: int | None, *, own: torch.Tensor, past: int, until: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return a mask [rows, 1, length, keys]: 0 where a token sees a key, else the lowest number of the type.

    ``own`` [rows, length] has the tokens' columns; a token sees those up to its own. Keys are the columns up to
    ``until``. With a window that does not reach back to the first token, the prefix's keys come first.
    """
    import torch

    column = torch.arange(until, device=own.device)
    seen = column <= own[:, :, None]
    if attention_window is not None:
        seen &= own[:, :, None] - column < attention_window
        if past and past + until > attention_window:
            before = torch.arange(past, device=own.device)
            seen = torch.cat((own[:, :, None] + past - before < attention_window, seen), dim=2)
    mask = torch.zeros(seen.shape, dtype=dtype, device=own.device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
