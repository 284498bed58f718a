"""Items -> units of work: the items whose requests are answered together.

Pure. Under xdist the controller knows node ids and nothing else, so units are a function of the node ids
alone, computed alike on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

DEFAULT_SIZE: Final = 64
"""Items a unit holds at most: enough to fill batches, few enough that progress shows and a crash costs little."""

GENERATING_SIZE: Final = 512
"""The same for items that ask for texts, in a process that shares its work with no other. Each of them is done
when its own texts are, and whenever a unit comes to its end, few texts are left to go on together."""

UNITS_PER_WORKER: Final = 4
"""Units each worker should get at least, so that the last ones even out."""


def batch_key(nodeid: str) -> str:
    """The properties that a batch's items share: file, function, checkpoint, benchmark and group.

    Example ids end in ``/ROW`` (``winogrande/17``, ``mmlu_stem/machine_learning/3``), so this is the node id
    without its last part. The node id is cut at ``::`` first: a file's name may hold brackets.
    """
    path, separator, name = nodeid.partition("::")
    bracket = name.find("[")
    if bracket < 0 or "/" not in name[bracket:]:
        return nodeid
    return path + separator + name.rpartition("/")[0]


def batch_size(count: int, workers: int, limit: int = DEFAULT_SIZE) -> int:
    """The largest unit that still gives each of the workers its share of units; at least 1, at most
    ``limit``.

    A single worker gets the largest units: there is nobody to even out with.
    """
    if workers <= 1:
        return max(1, limit)
    share = -(-count // (workers * UNITS_PER_WORKER))
    return max(1, min(limit, share))


def plan_batches(
    nodeids: Sequence[str],
    size: int,
    alone: Iterable[str] = (),
    generating: Iterable[str] = (),
    breaks: Iterable[str] = (),
) -> list[list[int]]:
    """Indices into ``nodeids``, grouped into units; each index is in exactly one unit.

    Items with the same ``batch_key`` come together in order of appearance, at most ``size`` a unit, or
    ``GENERATING_SIZE`` of those named in ``generating``; those named in ``alone`` get a unit each. No unit goes on
    beyond an item named in ``breaks``. Units are ordered by their first item.
    """
    solitary, large, ends = set(alone), set(generating), set(breaks)
    units: list[list[int]] = []
    filling: dict[str, list[int]] = {}
    for index, nodeid in enumerate(nodeids):
        key = batch_key(nodeid)
        if nodeid in ends:
            filling.clear()
        if nodeid in solitary or key == nodeid:
            units.append([index])
            continue
        unit = filling.get(key)
        if unit is None or len(unit) >= (GENERATING_SIZE if nodeid in large else size):
            unit = filling[key] = []
            units.append(unit)
        unit.append(index)
    return units
