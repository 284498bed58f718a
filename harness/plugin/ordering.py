"""The order of items where several checkpoints are served by one model in memory: a base and its adapters.

pytest runs all items of one checkpoint, then all of the next. Here a batch of the first is followed by the same batch
of the second, and so on, so that the checkpoints are compared early, and by the same items, and the model is loaded
once even where others stand between them on the command line. Nothing else moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from harness.plugin.batches import batch_key, plan_batches
from harness.plugin.collection import checkpoint_of, given_of
from harness.plugin.execution import alone_of, generating_of


def interleave(items: list[pytest.Item], size: int, *, by_kind: bool) -> None:
    """Put the items in that order, in place; ``size`` and ``by_kind`` are those by which they will run.

    Without two checkpoints of one model the items stay as they are.
    """
    keys = _models(items)
    shared = {key for key, count in Counter(keys.values()).items() if count > 1}
    if not shared:
        return
    moved = [
        index
        for index, item in enumerate(items)
        if given_of(item) is not None and keys[checkpoint_of(item).name] in shared
    ]
    some = [items[index] for index in moved]
    generating = generating_of(some) if by_kind else []
    groups: dict[object, list[list[int]]] = {index: [[index]] for index in {*range(len(items))} - {*moved}}
    seen: Counter[str] = Counter()
    for batch in plan_batches([item.nodeid for item in some], size, alone_of(some), generating):
        first = some[batch[0]]
        name, own = checkpoint_of(first).name, batch_key(first.nodeid)
        twins = own.replace(f"[{name}-", "[", 1)
        groups.setdefault((keys[name], twins, seen[own]), []).append([moved[number] for number in batch])
        seen[own] += 1
    ordered = sorted(groups.values(), key=lambda group: group[0][0])
    items[:] = [items[index] for group in ordered for batch in group for index in batch]


def _models(items: Sequence[pytest.Item]) -> dict[str, tuple[str, ...]]:
    """Name of a checkpoint -> what identifies its model in memory, of all items."""
    found: dict[str, tuple[str, ...]] = {}
    for item in items:
        if given_of(item) is not None and (info := checkpoint_of(item)).name not in found:
            found[info.name] = info.model_key
    return found
