"""Items -> batches: the items whose requests are answered together.

Pure. Under xdist the controller knows node ids and nothing else, so batches are a function of the node ids
alone, computed alike on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

DEFAULT_SIZE: Final = 64
"""The most items of a batch: enough to fill the model's, few enough that progress shows and a crash costs little."""

GENERATING_SIZE: Final = 512
"""The same for texts in a process that shares its work with no other, for served models, and on GPUs.

Each item is done when its own texts are; towards the end of every batch, only a few texts are left to be generated
together. A pass on a GPU takes as long to start as thousands of tokens take to compute.
"""

REPLICATED_SIZE: Final = 4096
"""The same where replicas answer: at the end of each batch some of them wait for the last."""

BATCHES_PER_WORKER: Final = 4
"""The least number of batches per worker, so that the last ones even out."""


def batch_key(nodeid: str) -> str:
    """Return the properties that a batch's items share: file, function, checkpoint, benchmark and group.

    Example ids end in ``/ROW`` (``winogrande/17``, ``mmlu_stem/machine_learning/3``), so this is the node id without
    its last part. The node id is cut at ``::`` first, since a file's name may contain brackets.
    """
    path, separator, name = nodeid.partition("::")
    bracket = name.find("[")
    if bracket < 0 or "/" not in name[bracket:]:
        return nodeid
    return path + separator + name.rpartition("/")[0]


def batch_size(count: int, workers: int, limit: int = DEFAULT_SIZE) -> int:
    """Return the largest size, at most ``limit``, that still gives each worker its share of batches.

    A single worker gets the largest batches: there is no other worker to balance with.
    """
    if workers <= 1:
        return max(1, limit)
    share = -(-count // (workers * BATCHES_PER_WORKER))
    return max(1, min(limit, share))


def plan_batches(
    nodeids: Sequence[str],
    size: int,
    alone: Iterable[str] = (),
    generating: Mapping[str, str] = MappingProxyType({}),
) -> list[list[int]]:
    """Return indices into ``nodeids``, grouped into batches; each index is in exactly one batch.

    Items with the same ``batch_key`` are batched in order of appearance, at most ``size`` per batch. Those in
    ``generating`` are batched by the keys that they have there, at most ``GENERATING_SIZE`` per batch. Each item in
    ``alone`` gets a batch of its own. Batches are ordered by their first item.
    """
    solitary = set(alone)
    batches: list[list[int]] = []
    filling: dict[str, list[int]] = {}
    for index, nodeid in enumerate(nodeids):
        key = batch_key(nodeid)
        if nodeid in solitary or key == nodeid:
            batches.append([index])
            continue
        key = generating.get(nodeid, key)
        batch = filling.get(key)
        if batch is None or len(batch) >= (GENERATING_SIZE if nodeid in generating else size):
            batch = filling[key] = []
            batches.append(batch)
        batch.append(index)
    return batches
