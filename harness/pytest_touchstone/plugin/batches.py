"""Items -> batches: the items whose requests are answered together, and what may run together or at any time.

Under xdist the controller knows node ids and nothing else, so batches are a function of the node ids alone, computed
alike on both sides.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from pytest_touchstone.core.requests import Generate
from pytest_touchstone.plugin.collection import Collection
from pytest_touchstone.plugin.options import device_kind
from pytest_touchstone.plugin.planned import Planned

DEFAULT_SIZE: Final = 64
"""The most items of a batch: enough to fill the model's, few enough that progress shows and a crash costs little."""

GENERATING_SIZE: Final = 4096
"""The same for texts in a process that shares its work with no other, for served models, and where replicas answer.

Each item is done when its own texts are; towards the end of every batch, only a few texts are left to be generated
together, and some replicas wait for the last.
"""

GPU_SIZE: Final = 2048
"""The same on GPUs. A pass there takes as long to start as thousands of tokens take to compute. A batch has several
passes, so that the answers of one are handed on while the next one is computed."""

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
    share = limit if workers <= 1 else -(-count // (workers * BATCHES_PER_WORKER))
    return max(1, min(limit, share))


def most_items(collection: Collection) -> int:
    """Return the most items of a batch of a run.

    Servers and GPUs take many things at once, and each batch ends with few of them.
    """
    settings = collection.settings
    if settings.batch_items:
        return int(settings.batch_items)
    if settings.engine or any(info.served for info in collection.checkpoints or ()):
        return GENERATING_SIZE
    return GPU_SIZE if device_kind(settings.model.device) == "cuda" else DEFAULT_SIZE


class BatchKind(NamedTuple):
    """What the items of a batch have in common, and how many they are at the most."""

    key: str
    most: int


def plan_batches(
    nodeids: Sequence[str],
    size: int,
    alone: Container[str] = (),
    kinds: Mapping[str, BatchKind] = MappingProxyType({}),
) -> list[list[int]]:
    """Return indices into ``nodeids``, grouped into batches; each index is in exactly one batch.

    Items of the same kind, which is their ``batch_key`` and ``size`` where ``kinds`` has no other, are batched in order
    of appearance. Each item in ``alone`` gets a batch of its own. Batches are ordered by their first item.
    """
    batches: list[list[int]] = []
    filling: dict[BatchKind, list[int]] = {}
    for index, nodeid in enumerate(nodeids):
        key = batch_key(nodeid)
        if nodeid in alone or key == nodeid:
            batches.append([index])
            continue
        kind = kinds.get(nodeid) or BatchKind(key, size)
        batch = filling.get(kind)
        if batch is None or len(batch) >= kind.most:
            batch = filling[kind] = []
            batches.append(batch)
        batch.append(index)
    return batches


def batches_of(items: Sequence[Planned], size: int, *, by_kind: bool) -> list[list[int]]:
    """Return the batches of the items, as indices; items with a mark for which they run alone have a batch each."""
    alone = {item.nodeid for item in items if item.marked}
    kinds: dict[str, BatchKind] = {}
    for item in items if by_kind else ():
        name, loaded = item.info.name, item.given.loaded
        if Generate in item.spec.asks:
            # A step of the model takes about as long for few texts as for many, so those of several benchmarks go on
            # together, but for benchmarks with a time limit.
            together = item.stands_alone and item.limit is None
            key = f"texts of {name}" if together else batch_key(item.nodeid)
            kinds[item.nodeid] = BatchKind(key, GENERATING_SIZE)
        elif size >= GPU_SIZE and item.stands_alone:
            # A benchmark's groups, each with examples of its own, are too few items to keep a GPU at work.
            kinds[item.nodeid] = BatchKind(f"{loaded.spec.name} of {name}", size)
    return plan_batches([item.nodeid for item in items], size, alone, kinds)
