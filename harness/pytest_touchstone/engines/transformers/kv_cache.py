"""Keys and values of prefixes and of rows that are being generated.

``PrefixSharedCache`` stands where a model expects transformers' ``Cache``, and has the keys and values of a prefix
that the rows of a batch share. It stores nothing unless asked to, so that no copy of the prefix outlives a layer.
``PrefixCache`` keeps prefixes from call to call.

``SlotCache`` has the keys and values of rows that are being generated, each row in a slot of preallocated buffers.
The prefix that all rows share is not in the slots (``split_attention``). A row's keys are written where they stay;
nothing is copied from step to step. The slots in use are the first ones, without gaps: when a row leaves, the last
one takes its slot. ``SlotCaches`` are several of them in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.agreement import UnsupportedError
from pytest_touchstone.engines.transformers.prefix_tree import common_prefix_length, longest_prefix_match
from pytest_touchstone.engines.transformers.split_attention import attach_cache_parts, attach_prefix

if TYPE_CHECKING:
    import torch


MOST_PREFIXES: Final = 4
"""The number of prefixes kept from call to call: the few-shot examples of the last few benchmarks or subjects."""

WORTH_KEEPING: Final = 32
"""The number of tokens from which a prefix is worth keeping."""


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values [1, heads, tokens, width] of every layer, for a text's first tokens."""

    tokens: tuple[int, ...] = ()
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()

    def cropped(self, length: int) -> KeyValues:
        """Return the keys and values of the first ``length`` tokens."""
        layers = tuple((key[:, :, :length], value[:, :, :length]) for key, value in self.layers)
        return KeyValues(self.tokens[:length], layers if length else ())

    def widened(self) -> KeyValues:
        """Return the keys and values in the type in which they are multiplied."""
        if not self.layers:
            return self
        dtype = cpu.stored_type(self.layers[0][0].dtype, self.layers[0][0].device)
        return KeyValues(self.tokens, tuple((key.to(dtype), value.to(dtype)) for key, value in self.layers))

    @property
    def bytes(self) -> int:
        """The bytes of memory of all layers."""
        return sum(tensor.numel() * tensor.element_size() for layer in self.layers for tensor in layer)


class _Cache:
    """A stand-in for transformers' ``Cache`` that begins with a prefix.

    Models with more state than keys and values read ``keeps`` to decide whether that state is stored.
    """

    is_compileable = False

    def __init__(self, prefix: KeyValues, *, keeps: bool) -> None:
        self.prefix, self.keeps = prefix, keeps

    @property
    def past(self) -> int:
        """The number of tokens of the prefix."""
        return len(self.prefix.tokens)

    def get_seq_length(self, *_: Any) -> int:
        """Return the number of earlier tokens; models call it to count positions."""
        return self.past

    def get_query_offset(self, *_: Any) -> int:
        """Return the position of the first query; transformers' mask code calls it."""
        return self.past

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        """Return the number of keys and the index of the first; transformers' mask code calls it."""
        return self.past + query_length, 0


class PrefixSharedCache(_Cache):
    """A cache whose rows all share the keys and values of a prefix.

    With ``record`` the keys and values of the pass are stored for ``made``. With ``split`` the layers attend by
    ``split_attention``, so that the prefix is not copied for the rows.
    """

    def __init__(self, prefix: KeyValues, *, record: bool = False, split: bool = False) -> None:
        super().__init__(prefix, keeps=record)
        self._split = split
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the keys and values of a layer to the prefix; return those that the layer attends to."""
        import torch

        new_keys_values = keys, values
        if self.prefix.layers and (self.keeps or not self._split):
            rows = keys.shape[0]
            keys, values = (
                torch.cat((past.expand(rows, -1, -1, -1), new), dim=2)
                for past, new in zip(self.prefix.layers[layer_idx], new_keys_values, strict=True)
            )
        if self.keeps:
            # Views would keep all that the layer computed, and products with rows that lie apart are slow.
            keys, values = keys.contiguous(), values.contiguous()
            self._made[layer_idx] = (keys, values)
        if self._split and self.prefix.layers:
            return attach_prefix(new_keys_values[0], self.prefix.layers[layer_idx]), new_keys_values[1]
        return keys, values

    def made(self, tokens: tuple[int, ...]) -> KeyValues:
        """Return the keys and values of ``tokens``, which are the prefix and the tokens computed after it.

        Raises:
            UnsupportedError: If the layers do not store keys and values by token.

        """
        if sorted(self._made) != list(range(len(self._made))) or not self._made:
            raise UnsupportedError("the model's layers do not hand over their keys and values one by one")
        layers = tuple(self._made[layer] for layer in range(len(self._made)))
        if any(tensor.dim() != 4 or tensor.shape[2] != len(tokens) for layer in layers for tensor in layer):
            raise UnsupportedError("the model's keys and values are not laid out by token")
        return KeyValues(tokens, layers)


class PrefixCache:
    """An LRU cache of up to ``most`` prefixes and ``most_bytes`` bytes."""

    def __init__(self, most_bytes: int, most: int = MOST_PREFIXES) -> None:
        self._most_bytes, self._most = most_bytes, most
        self._entries: list[KeyValues] = []
        self._last: tuple[int, ...] = ()

    def find(self, tokens: Sequence[int]) -> KeyValues:
        """Return the longest stored prefix of ``tokens``, which may be empty."""
        best, length = None, 0
        for entry in self._entries:
            if (shared := common_prefix_length(entry.tokens, tokens)) > length:
                best, length = entry, shared
        if best is None:
            return KeyValues()
        self._entries.remove(best)
        self._entries.append(best)
        return best.cropped(length)

    def keep(self, made: KeyValues) -> None:
        """Store a prefix; drop those that it contains, and the least recently used beyond the limits."""
        if len(made.tokens) < WORTH_KEEPING or made.bytes > self._most_bytes:
            return
        self._entries = [
            entry
            for entry in self._entries
            if common_prefix_length(entry.tokens, made.tokens) < len(entry.tokens)
        ]
        self._entries.append(made)
        while (
            len(self._entries) > self._most or sum(entry.bytes for entry in self._entries) > self._most_bytes
        ):
            del self._entries[0]

    def hints(self, sequences: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
        """Return the prefixes of ``sequences`` that are worth storing for later calls.

        These are prefixes that are stored already, or that most sequences of the previous call shared.
        """
        order = sorted(sequences)
        hints = set()
        for tokens in (self._last, *(entry.tokens for entry in self._entries)):
            closest = longest_prefix_match(order, tokens)
            length = 0 if closest is None else common_prefix_length(tokens, order[closest])
            if length >= WORTH_KEEPING:
                hints.add(tokens[:length])
        # The half of the sequences that stands in the middle of their order begins with this.
        middle = order[len(order) // 2]
        self._last = middle[
            : min(common_prefix_length(middle, order[len(order) * quarter // 4]) for quarter in (1, 3))
        ]
        return hints

    def clear(self) -> None:
        """Free the memory."""
        self._entries.clear()


_MORE_COLUMNS: Final = 64
"""The least number of columns that buffers have beyond those asked for; when enlarged, they also grow by a
quarter."""

_SPARE: Final = 2
"""A buffer is laid out for so many times the rows and columns asked for, where unused ones take no memory."""

_DENSE: Final = 4
"""The bytes of a number from which rows of a buffer may lie apart: products of smaller ones copy such rows."""

SlotKeyValues = list[tuple["torch.Tensor", "torch.Tensor"]]
"""Keys and values [heads, tokens, width] of one slot, by layer."""


@dataclass(frozen=True, slots=True)
class EndedRow:
    """The tokens of an ended text with their keys and values: of the prefix, and of its slot (``held``)."""

    tokens: tuple[int, ...]
    prefix: KeyValues
    held: SlotKeyValues

    def between(self, begin: int, end: int) -> SlotKeyValues:
        """Return the keys and values of the tokens from index ``begin`` up to ``end``."""
        import torch

        past = len(self.prefix.tokens)
        first, last = max(0, begin - past), max(0, end - past)
        row_layers = [(key[:, first:last], value[:, first:last]) for key, value in self.held]
        if begin >= past:
            return row_layers
        return [
            (
                torch.cat((prefix[0][0, :, begin:end], key), dim=1),
                torch.cat((prefix[1][0, :, begin:end], value), dim=1),
            )
            for prefix, (key, value) in zip(self.prefix.layers, row_layers, strict=True)
        ]

    def cropped(self, length: int, dtype: torch.dtype) -> KeyValues:
        """Return the keys and values of the first ``length`` tokens, in the model's own type."""
        layers = (
            (key[None].to(dtype).contiguous(), value[None].to(dtype).contiguous())
            for key, value in self.between(0, length)
        )
        return KeyValues(self.tokens[:length], tuple(layers))


class SlotCache(_Cache):
    """Preallocated keys and values of rows that are being generated, one row per slot.

    The model is given positions and masks. ``set_write_target`` selects the slots and columns of the next forward pass.
    A type that the processor does not multiply is stored as float32 (``cpu``), since each step multiplies all of it.

    Attributes:
        lengths: The tokens in each slot in use, without those of the prefix.
        begun: The tokens that the next slot holds already.
        layers: Keys and values of each layer [slots, heads, columns, width], with all reserved slots and columns.
        rows: The reserved slots.
        columns: The reserved columns, in tokens.
        stamp: An object that is replaced whenever the buffers are.
        first: The index of the first slot of the pass.
        count: The number of slots of the pass.
        until: The columns that the pass attends to, from 0 up to this one.

    """

    def __init__(self, prefix: KeyValues) -> None:
        super().__init__(prefix.widened(), keeps=True)
        self.lengths: list[int] = []
        self.begun = 0
        self.stamp = object()
        self.rows = self.columns = 0
        self._room = (0, 0)
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.first = self.count = self.until = 0
        self._written = 0  # no column from there on holds a token
        self._at: int | torch.Tensor = 0

    def own(self) -> None:
        """Move the prefix into the first slot.

        For a row that shares it with no other, split attention costs more than the copy.
        """
        prefix, self.prefix = self.prefix, KeyValues()
        self.begun = len(prefix.tokens)
        self.set_write_target(0, 1, 0, self.begun)
        for layer, parts in enumerate(prefix.layers):
            self.store(*parts, layer)

    def set_write_target(self, first: int, count: int, at: int | torch.Tensor, until: int) -> None:
        """Select the slots and columns that the next forward pass writes to, and reserve room for them.

        Args:
            first: The index of the first slot.
            count: The number of slots, one per row of the pass.
            at: The column of the first token of every row, or the columns [rows, length] of all tokens.
            until: The end of the columns that the rows attend to.

        """
        self.first, self.count, self._at, self.until = first, count, at, until
        self.reserve(first + count, grown_columns(self.columns, until))
        self._written = max(self._written, until)

    def reserve(self, rows: int, columns: int = 0) -> None:
        """Make room for ``rows`` rows of ``columns`` tokens, where there is less."""
        if rows > self.rows or columns > self.columns:
            self._resize(max(rows, self.rows), max(columns, self.columns))

    def trim(self) -> None:
        """Free the memory of slots that are not in use."""
        self._resize(len(self.lengths), self.columns)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the keys and values of a layer; return those that the rows attend to.

        A model may do more with them than attend, so they have the model's own number type. Where another type is
        stored, the stored tensors travel as an attribute of the keys, for ``split_attention``.
        """
        stored = self.store(keys, values, layer_idx)
        return stored if stored[0].dtype == keys.dtype else (attach_cache_parts(keys, [stored]), values)

    def store(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the keys and values of a layer; return those attended to, in the stored type."""
        import torch

        if layer_idx not in self.layers:
            self.layers[layer_idx] = (self._empty(keys), self._empty(values))
        for buffer, new in zip(self.layers[layer_idx], (keys, values), strict=True):
            rows = buffer[self.first : self.first + self.count]
            if isinstance(self._at, int):
                rows[:, :, self._at : self._at + new.shape[2]] = new
            else:
                each = torch.arange(self.count, device=new.device)[:, None]
                columns = self._at.to(new.device)  # of a model on several devices
                rows[each, :, columns] = new.transpose(1, 2).to(rows.dtype)
        return self.seen(layer_idx)

    def write_columns(self, length: int) -> torch.Tensor:
        """Return the columns [rows, length] that a pass of ``length`` tokens per row writes to."""
        import torch

        if isinstance(self._at, int):
            return torch.arange(self._at, self._at + length).repeat(self.count, 1)
        return self._at.contiguous()

    def make_buffers(self, layers: int, heads: int, width: int, like: torch.Tensor) -> None:
        """Create the missing buffers of all layers, for a pass that writes into them itself."""
        for layer in range(layers):
            if layer not in self.layers:
                like = like.new_empty((0, heads, 0, width))
                self.layers[layer] = (self._empty(like), self._empty(like))

    def seen(self, layer_idx: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a layer that the rows of the pass attend to."""
        end = self.first + self.count
        keys, values = (buffer[self.first : end, :, : self.until] for buffer in self.layers[layer_idx])
        return attach_prefix(keys, self.prefix.layers[layer_idx] if self.past else None), values

    def take(self, slot: int, length: int | None = None) -> SlotKeyValues:
        """Return a copy of a slot's keys and values, of all tokens or the first ``length``."""
        length = self.lengths[slot] if length is None else length
        return [
            (key[slot, :, :length].clone(), value[slot, :, :length].clone())
            for key, value in (self.layers[layer] for layer in sorted(self.layers))
        ]

    def put(self, slot: int, held: SlotKeyValues) -> None:
        """Write a copy of keys and values into a slot that is not in use."""
        length = held[0][0].shape[1]
        self.reserve(slot + 1, grown_columns(self.columns, length))
        self._written = max(self._written, length)
        if not self.layers:
            self.layers = {
                layer: (self._empty(key[None]), self._empty(value[None]))
                for layer, (key, value) in enumerate(held)
            }
        for layer, (key, value) in zip(sorted(self.layers), held, strict=True):
            self.layers[layer][0][slot, :, :length] = key
            self.layers[layer][1][slot, :, :length] = value

    def add(self, held: SlotKeyValues) -> None:
        """Write a copy of keys and values into the next slot, which is then in use."""
        self.put(len(self.lengths), held)
        self.lengths.append(held[0][0].shape[1])

    def drop(self, slot: int) -> None:
        """Free a slot; the last row moves there."""
        last = len(self.lengths) - 1
        length = self.lengths.pop()
        if slot == last:
            return
        for parts in self.layers.values():
            for buffer in parts:
                buffer[slot, :, :length] = buffer[last, :, :length]
        self.lengths[slot] = length

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros: what a mask hides is multiplied by 0, and leftover memory may hold NaN.
        rows, columns = self._room if cpu.supports_paged_tensors(like.device) else (self.rows, self.columns)
        dtype = cpu.stored_type(like.dtype, like.device)
        if dtype.itemsize < _DENSE:
            columns = self.columns
        return cpu.paged_zeros(like.new_empty(0, dtype=dtype), (rows, like.shape[1], columns, like.shape[3]))

    def _resize(self, rows: int, columns: int) -> None:
        """Resize the buffers in place if they have room, else by copying what fits."""
        kept, fewer = min(rows, self.rows), rows < self.rows
        self.rows, self.columns, self.stamp = rows, columns, object()
        room = self._room
        if rows > room[0] or columns > room[1]:
            self._room = max(room[0], _SPARE * rows), max(room[1], _SPARE * columns)
        for layer, parts in self.layers.items():
            key, value = (self._resized(buffer, kept, fewer=fewer) for buffer in parts)
            self.layers[layer] = (key, value)

    def _resized(self, buffer: torch.Tensor, kept: int, *, fewer: bool) -> torch.Tensor:
        if (
            cpu.supports_paged_tensors(buffer.device)
            and self.rows <= buffer.shape[0]
            and self.columns <= buffer.shape[2]
        ):
            if fewer:
                cpu.release_rows(buffer, self.rows)
            return buffer
        larger = self._empty(buffer)
        # Not the columns to spare: what is written there takes memory.
        larger[:kept, :, : self._written] = buffer[:kept, :, : self._written]
        return larger


def grown_columns(columns: int, until: int) -> int:
    """Return the columns to reserve when ``until`` are needed, so that buffers grow rarely."""
    return columns if until <= columns else until + max(_MORE_COLUMNS, until // 4)


class SlotCaches(_Cache):
    """The slot caches that one pass writes to, in the order of its rows."""

    def __init__(self, caches: Sequence[SlotCache]) -> None:
        super().__init__(KeyValues(), keeps=True)
        self.caches = caches

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the keys and values of a layer for all rows.

        What the rows attend to travels as an attribute of the returned keys.
        """
        import torch

        counts = [cache.count for cache in self.caches]
        parts = zip(self.caches, torch.split(keys, counts), torch.split(values, counts), strict=True)
        return attach_cache_parts(
            keys, [cache.store(key, value, layer_idx) for cache, key, value in parts]
        ), values
