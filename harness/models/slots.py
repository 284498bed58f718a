"""Keys and values of the rows that are being generated, each row in a slot of buffers made beforehand.

The beginning that all rows share is not in the slots (``split_attention``). A row's keys are written where
they stay; nothing is copied from step to step. The slots in use are the first ones, without gaps: where a row
leaves, the last one takes its slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.models.key_values import KeyValues
from harness.models.split_attention import put_behind

if TYPE_CHECKING:
    import torch

_MORE_COLUMNS: Final = 64
"""Columns that buffers have at least beyond those asked for; made larger, they grow by a quarter too."""

Held = list[tuple["torch.Tensor", "torch.Tensor"]]
"""Keys and values [heads, tokens, width] of one slot, by layer."""


class Slots:
    """Stands where a model expects transformers' ``Cache``.

    ``lengths``: tokens in each slot in use, the beginning's not counted. ``begun``: tokens that the next slot holds
    already.
    """

    is_compileable = False
    keeps = True
    """Asked by models with more to keep than keys and values: whether it stays."""

    def __init__(self, beginning: KeyValues, rows: int) -> None:
        self.beginning = beginning
        self.lengths: list[int] = []
        self.begun = 0
        self._rows, self._columns = rows, 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._first = self._count = self._until = 0
        self._at: int | torch.Tensor = 0

    @property
    def past(self) -> int:
        """Tokens of the beginning."""
        return len(self.beginning.tokens)

    def own(self) -> None:
        """Moves the beginning to the first slot: to a row that shares it with none, attention in two parts is dearer
        than the copy."""
        beginning, self.beginning = self.beginning, KeyValues()
        self.begun = len(beginning.tokens)
        self.aim(0, 1, 0, self.begun)
        for layer, parts in enumerate(beginning.layers):
            key, value = (self._empty(part) for part in parts)
            self._layers[layer] = (key, value)
            self.update(*parts, layer)

    def aim(self, first: int, count: int, at: int | torch.Tensor, until: int) -> None:
        """What the next forward pass computes goes to ``count`` slots from ``first`` on.

        ``at``: the column of its first token, for all rows; or the columns [rows, length] of all tokens. The
        rows attend to columns up to ``until``.
        """
        self._first, self._count, self._at, self._until = first, count, at, until
        if until > self._columns:
            self._columns = until + max(_MORE_COLUMNS, until // 4)
            for layer, parts in self._layers.items():
                key, value = (self._grown(part) for part in parts)
                self._layers[layer] = (key, value)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by a layer with what it computed for the rows; returns what they attend to."""
        if layer_idx not in self._layers:
            self._layers[layer_idx] = (self._empty(keys), self._empty(values))
        end = self._first + self._count
        for buffer, new in zip(self._layers[layer_idx], (keys, values), strict=True):
            part = buffer[self._first : end]
            if isinstance(self._at, int):
                part[:, :, self._at : self._at + new.shape[2]] = new
            else:
                index = self._at[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[3])
                part.scatter_(2, index, new)
        return self.seen(layer_idx)

    def seen(self, layer_idx: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the rows aimed at attend to in a layer."""
        end = self._first + self._count
        keys, values = (part[self._first : end, :, : self._until] for part in self._layers[layer_idx])
        if self.past:
            put_behind(keys, self.beginning.layers[layer_idx])
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        """Called by models to count positions, which are given to them."""
        return self.past

    def get_query_offset(self, *_: Any) -> int:
        """Called by the code that makes masks, which are given to models."""
        return self.past

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        """Called by the code that makes masks: number of keys, and which key is the first."""
        return self.past + query_length, 0

    def take(self, slot: int) -> Held:
        """A copy of what a slot holds."""
        length = self.lengths[slot]
        return [
            (key[slot, :, :length].clone(), value[slot, :, :length].clone())
            for key, value in (self._layers[layer] for layer in sorted(self._layers))
        ]

    def add(self, held: Held) -> None:
        """Puts such a copy in the next slot."""
        slot, length = len(self.lengths), held[0][0].shape[1]
        self.aim(slot, 1, 0, length)
        for layer, (key, value) in zip(sorted(self._layers), held, strict=True):
            self._layers[layer][0][slot, :, :length] = key
            self._layers[layer][1][slot, :, :length] = value
        self.lengths.append(length)

    def drop(self, slot: int) -> None:
        """Frees a slot; the last one's row moves there."""
        last = len(self.lengths) - 1
        length = self.lengths.pop()
        if slot == last:
            return
        for parts in self._layers.values():
            for part in parts:
                part[slot, :, :length] = part[last, :, :length]
        self.lengths[slot] = length

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros: what a mask hides is multiplied by 0, and leftovers of other memory may be NaN.
        return like.new_zeros((self._rows, like.shape[1], self._columns, like.shape[3]))

    def _grown(self, part: torch.Tensor) -> torch.Tensor:
        larger = self._empty(part)
        larger[:, :, : part.shape[2]] = part
        return larger


def slot_mask(
    attention_window: int | None,
    *,
    own: torch.Tensor,
    past: int,
    until: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[rows, 1, length, keys]: 0 where a token sees a key, else the lowest number of the type.

    ``own`` [rows, length]: the tokens' columns; a token sees those up to its own. Keys are the columns up to
    ``until``; with a window that some token's beginning does not fit in, those of the beginning stand in
    front.
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
