"""Keys and values of a beginning: shared by the rows of a batch, and kept from call to call.

``SharedPast`` stands where a model expects transformers' ``Cache``. Unlike that one it stores nothing unless
asked to: the rows of a batch see the beginning without owning a copy that outlives the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.models.prefix_tree import common

if TYPE_CHECKING:
    import torch

KEPT: Final = 4
"""Beginnings kept from call to call: the last few benchmarks' or subjects' shots."""

WORTH_KEEPING: Final = 32
"""Tokens that a beginning has at least to be kept."""


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values [1, heads, tokens, width] of every layer, for the tokens from the beginning on."""

    tokens: tuple[int, ...] = ()
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()

    def cropped(self, length: int) -> KeyValues:
        """The same for the first ``length`` tokens."""
        layers = tuple((key[:, :, :length], value[:, :, :length]) for key, value in self.layers)
        return KeyValues(self.tokens[:length], layers if length else ())

    @property
    def bytes(self) -> int:
        """The memory they take."""
        return sum(part.numel() * part.element_size() for layer in self.layers for part in layer)


class SharedPast:
    """What a model's layers ask of a cache: their keys and values behind those of the beginning.

    With ``record``, what they become is kept in ``made``.
    """

    is_compileable = False

    def __init__(self, past: KeyValues, *, record: bool = False) -> None:
        self._past = past
        self._record = record
        # Asked by models with more to keep than keys and values: whether it stays.
        self.keeps = record
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by a layer with what it computed for the batch; returns what it must attend to."""
        import torch

        if self._past.layers:
            past_keys, past_values = self._past.layers[layer_idx]
            rows = keys.shape[0]
            keys = torch.cat((past_keys.expand(rows, -1, -1, -1), keys), dim=2)
            values = torch.cat((past_values.expand(rows, -1, -1, -1), values), dim=2)
        if self._record:
            self._made[layer_idx] = (keys, values)
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        """Called by models to count positions."""
        return len(self._past.tokens)

    def get_query_offset(self, *_: Any) -> int:
        """Called by the code that makes masks."""
        return len(self._past.tokens)

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        """Called by the code that makes masks: number of keys, and which key is the first."""
        return len(self._past.tokens) + query_length, 0

    def made(self, tokens: tuple[int, ...]) -> KeyValues:
        """The keys and values of the beginning and what was computed behind it: ``tokens`` in all."""
        if sorted(self._made) != list(range(len(self._made))) or not self._made:
            raise RuntimeError("the model's layers do not hand over their keys and values one by one")
        layers = tuple(self._made[layer] for layer in range(len(self._made)))
        if any(part.dim() != 4 or part.shape[2] != len(tokens) for layer in layers for part in layer):
            raise RuntimeError("the model's keys and values are not laid out by token")
        return KeyValues(tokens, layers)


class Kept:
    """A few beginnings, the longest unused goes first; ``most_bytes`` in all."""

    def __init__(self, most_bytes: int, most: int = KEPT) -> None:
        self._most_bytes, self._most = most_bytes, most
        self._entries: list[KeyValues] = []
        self._last: tuple[int, ...] = ()

    def find(self, tokens: Sequence[int]) -> KeyValues:
        """The most that is kept of the beginning of ``tokens``, perhaps nothing."""
        best, length = None, 0
        for entry in self._entries:
            if (shared := common(entry.tokens, tokens)) > length:
                best, length = entry, shared
        if best is None:
            return KeyValues()
        self._entries.remove(best)
        self._entries.append(best)
        return best.cropped(length)

    def keep(self, made: KeyValues) -> None:
        """Keeps a beginning, and drops those that it contains and those there is no more room for."""
        if len(made.tokens) < WORTH_KEEPING or made.bytes > self._most_bytes:
            return
        self._entries = [
            entry for entry in self._entries if common(entry.tokens, made.tokens) < len(entry.tokens)
        ]
        self._entries.append(made)
        while len(self._entries) > self._most or sum(one.bytes for one in self._entries) > self._most_bytes:
            del self._entries[0]

    def hints(self, sequences: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
        """Beginnings of ``sequences`` that are kept, or that the call before had too and that are likely to
        come again."""
        found = set()
        for seen in (self._last, *(entry.tokens for entry in self._entries)):
            length = min(max(common(seen, one) for one in sequences), len(seen))
            if length >= WORTH_KEEPING:
                found.add(seen[:length])
        self._last = _usual_beginning(sequences)
        return found

    def clear(self) -> None:
        """Frees the memory."""
        self._entries.clear()


def _usual_beginning(sequences: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """What half of the sequences, those in the middle of their order, begin with; perhaps nothing."""
    order = sorted(sequences)
    middle = order[len(order) // 2]
    return middle[: min(common(middle, order[len(order) * part // 4]) for part in (1, 3))]
