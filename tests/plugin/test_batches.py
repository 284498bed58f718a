"""Batches are pure functions of node ids; every item of them runs on recorded nodes, whatever crashes."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.base import RequestQueue
from pytest_touchstone.plugin.batches import (
    DEFAULT_SIZE,
    GENERATING_SIZE,
    GPU_SIZE,
    BatchKind,
    BatchScheduler,
    Quarantine,
    batch_key,
    batch_size,
    most_items,
    plan_batches,
)
from pytest_touchstone.plugin.collection import Collection
from tests.support.lines import missing
from tests.support.project import Project

NODEIDS = st.lists(
    st.builds(
        lambda file, name, checkpoint, row: f"evals/{file}.py::test_{name}[{checkpoint}{name}/{row}]",
        st.sampled_from(["test_a", "test_[b]"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["", "step-1-", "step-2-"]),
        st.integers(0, 500),
    ),
    unique=True,
    max_size=60,
)


@given(NODEIDS, st.integers(1, 20), st.randoms())
def test_batches_cover_each_item_exactly_once(nodeids: list[str], size: int, random: object) -> None:
    alone = [nodeid for index, nodeid in enumerate(nodeids) if index % 7 == 3]
    batches = plan_batches(nodeids, size, alone)
    assert sorted(index for batch in batches for index in batch) == list(range(len(nodeids)))
    assert all(1 <= len(batch) <= size for batch in batches)


@given(NODEIDS, st.integers(1, 20))
def test_a_batch_holds_items_of_one_function_and_one_checkpoint(nodeids: list[str], size: int) -> None:
    for batch in plan_batches(nodeids, size):
        assert len({batch_key(nodeids[index]) for index in batch}) == 1


@given(NODEIDS, st.integers(1, 20))
def test_items_named_alone_share_no_batch(nodeids: list[str], size: int) -> None:
    alone = set(nodeids[::3])
    for batch in plan_batches(nodeids, size, alone):
        assert len(batch) == 1 or not alone & {nodeids[index] for index in batch}


@given(st.integers(0, 100_000), st.integers(1, 64), st.integers(1, 512))
def test_every_worker_can_get_its_share_of_batches(count: int, workers: int, limit: int) -> None:
    size = batch_size(count, workers, limit)
    assert 1 <= size <= limit
    if workers > 1 and count >= workers * 4:
        assert -(-count // size) >= workers


@given(NODEIDS, st.integers(1, 20))
def test_batches_of_texts_are_larger_and_no_others(nodeids: list[str], size: int) -> None:
    generating = [nodeid for nodeid in nodeids if "::test_x" in nodeid]
    batches = plan_batches(
        nodeids, size, kinds={one: BatchKind(batch_key(one), GENERATING_SIZE) for one in generating}
    )
    others = [nodeid for nodeid in nodeids if nodeid not in generating]
    found = [[nodeids[index] for index in batch] for batch in batches]
    assert [batch for batch in found if batch[0] in others] == [
        [others[index] for index in batch] for batch in plan_batches(others, size)
    ]
    keys = [batch_key(batch[0]) for batch in found if batch[0] in generating]
    assert len(keys) == len(set(keys))


@given(NODEIDS, st.integers(1, 20))
def test_texts_of_a_checkpoint_share_a_batch_across_benchmarks(nodeids: list[str], size: int) -> None:
    steps = {nodeid: BatchKind(nodeid.partition("step-")[2][:1], GENERATING_SIZE) for nodeid in nodeids[::2]}
    batches = [[nodeids[index] for index in batch] for batch in plan_batches(nodeids, size, kinds=steps)]
    assert sorted(nodeid for batch in batches for nodeid in batch) == sorted(nodeids)
    of_texts = [batch for batch in batches if batch[0] in steps]
    assert [{steps[nodeid] for nodeid in batch} for batch in of_texts] == [
        {step} for step in dict.fromkeys(steps.values())
    ]
    assert not any(set(batch) & steps.keys() for batch in batches if batch not in of_texts)


def test_a_batch_of_texts_has_its_limit_too() -> None:
    nodeids = [f"t.py::test_a[x/{number}]" for number in range(2 * GENERATING_SIZE + 1)]
    kinds = dict.fromkeys(nodeids, BatchKind("texts", GENERATING_SIZE))
    sizes = [len(batch) for batch in plan_batches(nodeids, 8, nodeids[:3], kinds)]
    assert sizes == [1, 1, 1, GENERATING_SIZE, GENERATING_SIZE - 2]


def test_scores_of_several_groups_are_batched_together_as_far_as_they_fit() -> None:
    nodeids = [f"t.py::test_a[x/{group}/{number}]" for group in "ab" for number in range(3)]
    assert plan_batches(nodeids, 4) == [[0, 1, 2], [3, 4, 5]]
    assert plan_batches(nodeids, 4, kinds=dict.fromkeys(nodeids, BatchKind("x of y", 4))) == [
        [0, 1, 2, 3],
        [4, 5],
    ]


@pytest.mark.parametrize(("least", "asked"), [(DEFAULT_SIZE + 1, [2] * 20), (DEFAULT_SIZE, [40])])
def test_the_groups_of_a_benchmark_are_asked_together_where_batches_are_a_gpus(
    least: int, asked: list[int], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project.path / "test_sums.py"
    text = file.read_text(encoding="utf-8").replace("version=1,", 'version=1, group="q",')
    file.write_text(text, encoding="utf-8")
    sizes: list[int] = []
    right = RequestQueue._ask

    def ask(self: RequestQueue, requests: Any) -> None:
        sizes.append(len(requests))
        right(self, requests)

    monkeypatch.setattr(RequestQueue, "_ask", ask)
    monkeypatch.setattr("pytest_touchstone.plugin.batches.GPU_SIZE", least)
    project.run().assert_outcomes(passed=20)
    assert sizes == asked


def test_a_key_keeps_brackets_in_file_names_apart_from_parameters() -> None:
    assert batch_key("evals/[old]/test_a.py::test_a[gsm8k/17]") == "evals/[old]/test_a.py::test_a[gsm8k"
    assert batch_key("evals/[a/b]/test_a.py::test_a") == "evals/[a/b]/test_a.py::test_a"
    assert (
        batch_key("evals/test_a.py::test_a[mmlu_stem/algebra/3]")
        == "evals/test_a.py::test_a[mmlu_stem/algebra"
    )


def test_an_ordinary_test_is_a_batch_of_its_own() -> None:
    assert plan_batches(["t.py::a", "t.py::b[1]", "t.py::c[x/1]", "t.py::c[x/2]"], 8) == [[0], [1], [2, 3]]


@pytest.mark.parametrize(
    ("device", "asked", "most"),
    [("cpu", None, DEFAULT_SIZE), ("cuda:1", None, GPU_SIZE), ("cuda", 8, 8)],
)
def test_a_gpu_gets_more_items_at_once_where_nothing_else_is_asked_for(
    device: str, asked: int | None, most: int
) -> None:
    settings: Any = SimpleNamespace(engine=None, batch_items=asked, model=SimpleNamespace(device=device))
    assert most_items(Collection(settings)) == most


# Workers of xdist


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
    assert not missing(str(config.reports[0].longrepr), "gw1 alone has ['c']", "lacks ['b']")
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
