"""The batch scheduler against recorded nodes: every item runs, whatever crashes."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.plugin.xdist import BatchScheduler, Quarantine


class RecordedNode:
    """Stands in for xdist's WorkerController: notes what it is sent, and finishes items as a worker would."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.queue: list[int] = []
        self.sent: list[list[int]] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.queue.extend(indices)
        self.sent.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True

    def can_start(self) -> bool:
        """A worker starts an item only when it knows the next one, or that there is none."""
        return len(self.queue) > 1 or bool(self.queue and self.shutting_down)


class Config:
    """Stands in for pytest's config: notes collection errors."""

    def __init__(self) -> None:
        self.reports: list[pytest.CollectReport] = []
        self.hook = SimpleNamespace(pytest_collectreport=self.note)

    def note(self, report: pytest.CollectReport) -> None:
        self.reports.append(report)


def started(
    tmp_path: Path, nodeids: list[str], workers: int, limit: int = 4
) -> tuple[Any, list[RecordedNode], Config]:
    config = Config()
    scheduler: Any = BatchScheduler(config, workers, limit, Quarantine(tmp_path / "q.txt"))  # type: ignore[arg-type]
    nodes = [RecordedNode(f"gw{n}") for n in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, nodeids)
    scheduler.schedule()
    return scheduler, nodes, config


def run_to_end(
    scheduler: Any, nodes: list[RecordedNode], nodeids: list[str], deadly: set[int], chance: random.Random
) -> tuple[set[int], set[str], int]:
    """Plays xdist's part to the end: items done, items given up, crashes."""
    done: set[int] = set()
    crashes: dict[str, int] = {}
    given_up: set[str] = set()
    for _ in range(10_000):
        if scheduler.tests_finished:
            for node in nodes:
                node.shutdown()
        ready = [node for node in nodes if node.can_start()]
        if not ready:
            break
        node = chance.choice(ready)
        index = node.queue[0]
        unit_mates = [i for i in next(unit for unit in node.sent if index in unit) if i in node.queue]
        alone = nodeids[index] in scheduler.quarantine.items()
        fatal = (
            {index} if alone else {i for i in unit_mates if nodeids[i] not in scheduler.quarantine.items()}
        )
        if fatal & deadly:
            nodes.remove(node)
            crashed = scheduler.remove_node(node)
            assert crashed == nodeids[index]
            crashes[crashed] = crashes.get(crashed, 0) + 1
            if crashes[crashed] < 2:
                scheduler.mark_test_pending(crashed)
            else:
                given_up.add(crashed)
            clone = RecordedNode(f"gw{100 + sum(crashes.values())}")
            nodes.append(clone)
            scheduler.add_node(clone)
            scheduler.add_node_collection(clone, nodeids)
            scheduler.schedule()
        else:
            node.queue.pop(0)
            done.add(index)
            scheduler.mark_test_complete(node, index)
    return done, given_up, sum(crashes.values())


@given(st.integers(0, 60), st.integers(1, 4), st.integers(1, 9), st.integers(0, 2), st.integers())
def test_every_item_runs_but_the_guilty_ones(
    count: int, workers: int, limit: int, guilty: int, seed: int
) -> None:
    import tempfile

    chance = random.Random(seed)
    nodeids = [f"t.py::test[{'ab'[n % 2]}/{n}]" for n in range(count)]
    deadly = set(chance.sample(range(count), min(guilty, count)))
    with tempfile.TemporaryDirectory() as folder:
        scheduler, nodes, _ = started(Path(folder), nodeids, workers, limit)
        done, given_up, _ = run_to_end(scheduler, nodes, nodeids, deadly, chance)
    assert done == set(range(count)) - deadly
    assert given_up == {nodeids[index] for index in deadly}
    assert scheduler.tests_finished
    assert not scheduler.has_pending


def test_a_node_is_fed_one_unit_ahead_so_that_its_last_item_can_start(tmp_path: Path) -> None:
    nodeids = [f"t.py::test[a/{n}]" for n in range(8)]
    scheduler, (node,), _ = started(tmp_path, nodeids, 1)
    assert node.queue == [0, 1, 2, 3]
    for index in range(3):
        node.queue.remove(index)
        scheduler.mark_test_complete(node, index)
    assert node.queue == [3, 4, 5, 6, 7]


def test_a_node_is_shut_down_when_nothing_is_left(tmp_path: Path) -> None:
    scheduler, nodes, _ = started(tmp_path, ["t.py::test[a/0]"], 2)
    assert nodes[0].queue == [0]
    assert all(node.shutting_down for node in nodes)
    assert scheduler.tests_finished


def test_workers_that_collect_different_items_end_the_run_with_the_difference(tmp_path: Path) -> None:
    config = Config()
    scheduler: Any = BatchScheduler(config, 2, 4, Quarantine(tmp_path / "q.txt"))  # type: ignore[arg-type]
    nodes = [RecordedNode("gw0"), RecordedNode("gw1")]
    for node, found in zip(nodes, (["a", "b"], ["a", "c"]), strict=True):
        scheduler.add_node(node)
        scheduler.add_node_collection(node, found)
    scheduler.schedule()
    assert "gw1 alone has ['c'], it lacks ['b']" in str(config.reports[0].longrepr)
    assert scheduler.tests_finished


def test_what_a_dead_worker_had_not_begun_stays_a_unit(tmp_path: Path) -> None:
    nodeids = [f"t.py::test[a/{n}]" for n in range(8)]
    scheduler, (node,), _ = started(tmp_path, nodeids, 1)
    for index in range(3):
        scheduler.mark_test_complete(node, index)
    assert scheduler.remove_node(node) == nodeids[3]
    assert scheduler.quarantine.items() == {nodeids[3]}
    other = RecordedNode("gw1")
    scheduler.add_node(other)
    scheduler.add_node_collection(other, nodeids)
    scheduler.schedule()
    assert other.sent == [[4, 5, 6, 7]]
