"""Batches: the items whose requests are answered together, and how xdist's workers share them.

Under xdist the controller knows node ids and nothing else, so batches are a function of the node ids alone, computed
alike on both sides.

``BatchScheduler`` hands whole batches to xdist's workers, and outlives their crashes. It is written against
``xdist.scheduler.protocol.Scheduling``. xdist 3.8's own group schedulers hang after a worker crash, and re-run the item
at fault until the restart budget is gone (pytest-xdist #1323, #1327, #1371, #1378). ``--dist=loadgroup`` does not group
at all with pytest 9.2 (#1386).

A worker starts an item only once it knows the next one, so it is fed one batch ahead: the next batch comes when one
item or none is pending. A worker is shut down when nothing is left to hand out, so that its last item runs.

When a worker dies, the rest of its current batch goes to the quarantine file, which workers read. It comes back one
item at a time, so that the item at fault dies alone. Batches that the worker had not begun come back unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from pytest_touchstone.core import disk
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.plugin.collection import Collection
from pytest_touchstone.plugin.options import device_kind
from pytest_touchstone.plugin.planned import PlannedItem

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

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
    """Return the largest batch size, at most ``limit``, that gives every worker its share of batches.

    A single worker gets the largest batches, because no load has to be balanced.
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
    """Return indices into ``nodeids`` grouped into batches; each index is in exactly one batch.

    Items of the same kind are batched in order of appearance; a kind is ``kinds[node id]``, by default its
    ``batch_key`` and ``size``. Each item in ``alone`` gets a batch of its own. Batches are ordered by their first item.
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


def split_into_batches(items: Sequence[PlannedItem], size: int, *, by_kind: bool) -> list[list[int]]:
    """Return the batches as indices; an item that is marked to run alone is a batch of its own."""
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


# Workers of xdist


FEED_AT: Final = 1
"""A node with this many pending items or fewer is handed its next batch."""


class Quarantine:
    """The items that run alone because a worker died with them.

    They are a file of node ids, one per line, that every process reads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, nodeids: Sequence[str]) -> None:
        """Put items into quarantine."""
        disk.make_folder(self.path.parent)
        disk.append_text(self.path, "".join(f"{nodeid}\n" for nodeid in nodeids))

    def items(self) -> frozenset[str]:
        """Return the items in quarantine now."""
        try:
            return frozenset(self.path.read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return frozenset()


class BatchScheduler:
    """Lists of indices for every node; ``batches`` are waiting, ``pending`` are sent and unfinished.

    Example: nodes gw0 and gw1, batches [0 1 2] [3 4 5] [6 7]. gw0 gets 0 1 2, gw1 gets 3 4 5. When gw0 has only 2
    left, it gets 6 7. When gw1 has only 5 left, nothing waits, and it is told to shut down.
    """

    def __init__(self, config: pytest.Config, numnodes: int, limit: int, quarantine: Quarantine) -> None:
        self.config = config
        self.numnodes = numnodes
        self.limit = limit
        self.quarantine = quarantine
        self.collection: list[str] | None = None
        self.broken = False
        self._collections: dict[WorkerController, list[str]] = {}
        self._pending: dict[WorkerController, deque[int]] = {}
        self._batch_of: dict[int, int] = {}
        self._batches: deque[list[int]] = deque()
        self._index: dict[str, int] = {}

    @property
    def nodes(self) -> list[WorkerController]:
        """The nodes; DSession reads them when it shuts down."""
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        """Return whether every node has collected, so that ``schedule`` may be called."""
        return len(self._collections) >= self.numnodes or (
            self.collection is not None and bool(self._collections)
        )

    @property
    def tests_finished(self) -> bool:
        """Return whether nothing waits and every node has at most one item left.

        That item runs only when the node is shut down.
        """
        if not self.collection_is_completed:
            return False
        return not self._batches and all(len(pending) <= FEED_AT for pending in self._pending.values())

    @property
    def has_pending(self) -> bool:
        """Return whether any item is waiting or under way."""
        return bool(self._batches) or any(self._pending.values())

    def add_node(self, node: WorkerController) -> None:
        """Add a worker that is ready, before it collects."""
        self._pending[node] = deque()

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Take what a worker has collected; every worker must have found the same."""
        nodeids = list(collection)
        reference = self.collection or next(iter(self._collections.values()), nodeids)
        if nodeids != reference:  # the run ends: workers that see different items cannot share indices
            self.broken = True
            only_here = [nodeid for nodeid in nodeids if nodeid not in set(reference)][:3]
            only_there = [nodeid for nodeid in reference if nodeid not in set(nodeids)][:3]
            text = (
                f"workers collected different items: {node.gateway.id} alone has {only_here}, it lacks {only_there}; "
                "a benchmark's ids may not depend on time, chance or set order"
            )
            report = pytest.CollectReport(node.gateway.id, "failed", longrepr=text, result=[])
            self.config.hook.pytest_collectreport(report=report)
        self._collections[node] = nodeids

    def schedule(self) -> None:
        """Plan the batches the first time, then feed; called after every collection once all are complete."""
        if self.broken:
            return
        if self.collection is None:
            self.collection = next(iter(self._collections.values()))
            self._index = {nodeid: index for index, nodeid in enumerate(self.collection)}
            size = batch_size(len(self.collection), self.numnodes, self.limit)
            self._batches += plan_batches(self.collection, size)
            self._batch_of = {index: number for number, batch in enumerate(self._batches) for index in batch}
        self._feed_all()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Take note that a worker has finished an item."""
        del duration
        self._pending[node].remove(item_index)
        self._feed(node)

    def mark_test_pending(self, item: str) -> None:
        """Put back an item that is to run once more; it runs alone, next."""
        self._batches.appendleft([self._index[item]])
        self._feed_all()

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        """Do nothing: it is part of the protocol for schedulers that steal."""
        raise RuntimeError(f"{node} gave back {list(indices)}, which was never asked for")

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove a dead worker; return the node id of the item it died in, None if it had none.

        The item is not handed out again by itself; the plugin decides (``mark_test_pending``).
        """
        pending = self._pending.pop(node)
        self._collections.pop(node, None)
        if not pending or self.collection is None:
            return None
        crashed = pending.popleft()
        batch = self._batch_of.get(crashed)
        begun = [index for index in pending if self._batch_of.get(index) == batch]
        rest = [index for index in pending if self._batch_of.get(index) != batch]
        self.quarantine.add([self.collection[index] for index in (crashed, *begun)])
        again = [*([index] for index in begun), *([rest] if rest else [])]
        self._batches.extendleft(reversed(again))
        self._feed_all()
        return self.collection[crashed]

    def _feed_all(self) -> None:
        if self.broken or self.collection is None:
            return
        for node in self._pending:
            self._feed(node)

    def _feed(self, node: WorkerController) -> None:
        """Hand batches to a node until it has its next index; shut it down if none is left."""
        if node not in self._collections or node.shutting_down:
            return
        pending = self._pending[node]
        while self._batches and len(pending) <= FEED_AT:
            batch = self._batches.popleft()
            pending.extend(batch)
            with suppress(OSError):  # it has just died, and its batch comes back by ``remove_node``
                node.send_runtest_some(batch)
        if not self._batches and len(pending) <= FEED_AT:
            node.shutdown()


def schedule_batches(config: pytest.Config, limit: int, quarantine: Path) -> None:
    """Replace xdist's scheduler by one of batches of at most ``limit`` items.

    This is called when the first worker has collected a benchmark. It is not known earlier whether there is one, and
    other sessions keep their own scheduler. Nothing is handed out before that (``DSession.sched``, xdist 3.8).
    """
    from xdist.workermanage import parse_tx_spec_config

    session = config.pluginmanager.get_plugin("dsession")
    if session is None or config.getoption("dist") in ("no", "each"):
        return
    nodes = session.sched.nodes
    session.sched = BatchScheduler(config, len(parse_tx_spec_config(config)), limit, Quarantine(quarantine))
    for node in nodes:
        session.sched.add_node(node)
