"""The power is cut anywhere: the same command goes on, and its report is the undisturbed one.

The product's journal, driver, reuse, aggregation, store and reports run here on a simulated disk (``disk``), by the
calls of a run (``kept``), without pytest and processes around them; the last test has whole runs of pytest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pytest_touchstone.checkpoints.formats import FakeFormat
from pytest_touchstone.results.journal import Journal, latest_records, read_journal
from pytest_touchstone.results.summary import load_summary
from tests.drill.conftest import Drill
from tests.drill.disk import HOLE, Moment, PowerCut, SimulatedDisk, here
from tests.drill.kept import (
    ACCEPTED,
    Attempt,
    Question,
    View,
    attempt,
    check_kept,
    check_store,
    merged,
    others,
    report_of,
    scores_in,
    shards,
    simplified,
    steps,
)
from tests.support.project import ALONE, Project

SMALL: Final = Question(3, batch=2)
LARGE: Final = Question(20)
TWO: Final = Question(5, ("step-1", "step-2"), batch=2)


@contextmanager
def on_a_disk() -> Iterator[SimulatedDisk]:
    """A simulated disk in the product, for a while."""
    with here() as root, pytest.MonkeyPatch.context() as patch:
        disk = SimulatedDisk(root).install(patch)
        simplified(patch, disk.clock)
        yield disk


def undisturbed(disk: SimulatedDisk, question: Question) -> dict[str, Any]:
    """The report of a run that nothing disturbs; the disk is empty afterwards."""
    report = attempt(disk.root / "results", question, disk, number=0).report
    assert report is not None
    disk.restore({})
    return report


def go_on(
    disk: SimulatedDisk, question: Question, expected: dict[str, Any], *, number: int, damaged: bool = False
) -> Attempt:
    """Run the command once more to its end, and check its report, and that it asks nothing of what must last."""
    promised = set(disk.promised)
    made = attempt(disk.root / "results", question, disk, number=number)
    assert made.report == expected, "the report differs"
    assert not promised.intersection(made.asked), "asked again, though it was synced"
    assert damaged or not made.damaged, f"named as damaged: {made.damaged}"
    check_store(disk.root / "results")
    return made


def moments_of(disk: SimulatedDisk, question: Question) -> list[Moment]:
    """The disk before each operation of an undisturbed run, and after the last."""
    disk.history = []
    attempt(disk.root / "results", question, disk, number=0, whole=True)
    return [*disk.history, disk.moment()]


class Tried(NamedTuple):
    """Crash points, their tails, and those of them that the product reads as different."""

    points: int
    tails: int
    different: int


def every_crash(disk: SimulatedDisk, question: Question) -> Tried:
    """Cut the power at each operation, have the product read each tail, and go on from all that read differently."""
    expected = undisturbed(disk, question)
    moments = moments_of(disk, question)
    seen: set[int] = set()
    tails = 0
    with here() as scratch:
        view = View(scratch / "file")
        for moment in moments:
            for kind, state in moment.tails():
                tails += 1
                if (key := hash((view.of(state), moment.promised, kind == HOLE))) not in seen:
                    seen.add(key)
                    disk.restore(state, moment.promised)
                    go_on(disk, question, expected, number=1, damaged=kind == HOLE)
    return Tried(len(moments), tails, len(seen))


def count(drill: Drill, tried: Tried) -> None:
    drill.figure("crash points tried, each with every tail", tried.points)
    drill.figure("tails that a disk may leave, read", tried.tails)
    drill.figure("tails that read differently, gone on from", tried.different)
    for zero in ("synced scores lost", "synced items asked again", "reports changed"):
        drill.figure(f"{zero} by a power cut", 0)


def test_a_small_run_is_cut_at_every_operation_with_every_tail(drill: Drill) -> None:
    with on_a_disk() as disk:
        count(drill, every_crash(disk, SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("question", [LARGE, TWO], ids=["20 items", "two checkpoints"])
def test_a_run_is_cut_at_every_operation_with_every_tail(drill: Drill, question: Question) -> None:
    with on_a_disk() as disk:
        count(drill, every_crash(disk, question))


def random_run(disk: SimulatedDisk, seed: int, known: dict[Question, dict[str, Any]]) -> int:
    """Cut the power up to three times, each time in a run that goes on from the last; return how often."""
    draw = random.Random(seed)
    names = ("step-1", "step-2")[: draw.choice((1, 1, 1, 2))]
    question = Question(draw.randint(1, 8), names, seed=draw.randint(1, 2), batch=draw.randint(1, 4))
    disk.restore({})
    asked = replace(question, batch=1)
    if asked not in known:
        known[asked] = undisturbed(disk, asked)
    expected = known[asked]
    disk.clock.step = draw.choice((0.05, 0.3, 1.1))
    calls, cuts = 70 + 4 * question.items, draw.randint(1, 3)
    for number in range(cuts):
        disk.stop_at = draw.randint(1, calls)
        made, promised = Attempt(), set(disk.promised)
        try:
            attempt(disk.root / "results", question, disk, made, number=number)
        except PowerCut:
            disk.restore(disk.moment().drawn_tail(draw), frozenset(disk.promised))
        disk.stop_at = None
        assert not promised.intersection(made.asked), f"seed {seed}: asked again, though it was synced"
    try:
        go_on(disk, question, expected, number=cuts, damaged=True)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return cuts


def random_runs(seeds: Iterable[int]) -> int:
    with on_a_disk() as disk:
        known: dict[Question, dict[str, Any]] = {}
        return sum(random_run(disk, seed, known) for seed in seeds)


def test_random_runs_are_cut_and_go_on_and_are_cut_again(drill: Drill, pytestconfig: pytest.Config) -> None:
    """A hundred thousand (``--drill-runs 100000``) take most of an hour."""
    seeds = drill.seeds(100, pytestconfig.getoption("--drill-runs") or 8_000)
    if drill.whole and len(seeds) > 1:
        parts = [range(begin, len(seeds), 40) for begin in range(40)]
        with ProcessPoolExecutor(2) as processes:
            cuts = sum(processes.map(random_runs, parts))
    else:
        cuts = random_runs(seeds)
    drill.figure("random runs", len(seeds))
    drill.figure("power cuts in random runs", cuts)


def test_a_run_beside_another_is_cut_with_it(drill: Drill) -> None:
    """Two runs of the same command in the same folder at once, batch by batch in a random order."""
    seeds = drill.seeds(25, 400)
    with on_a_disk() as disk:
        expected = undisturbed(disk, TWO)
        for seed in seeds:
            draw = random.Random(seed)
            disk.restore({})
            disk.stop_at = draw.randint(1, 350)
            output, made = disk.root / "results", [Attempt(), Attempt()]
            running = {number: steps(output, TWO, disk, made[number], number=number) for number in (0, 1)}
            try:
                while running:
                    number = draw.choice(list(running))
                    if next(running[number], True):
                        del running[number]
            except PowerCut:
                for one in running.values():
                    with suppress(PowerCut):
                        one.close()
                disk.restore(disk.moment().drawn_tail(draw), frozenset(disk.promised))
            disk.stop_at = None
            assert all(one.report in (None, expected) for one in made), f"seed {seed}"
            go_on(disk, TWO, expected, number=2, damaged=True)
    drill.figure("pairs of runs at once", len(seeds))


@pytest.mark.slow
def test_all_else_that_is_kept_is_old_or_new_after_a_cut(drill: Drill) -> None:
    with on_a_disk() as disk:
        count(drill, cut_others(disk))


def cut_others(disk: SimulatedDisk) -> Tried:
    """Cut the power wherever something else than a run is kept."""
    output = disk.root / "results"
    attempt(output, SMALL, disk, number=0)
    disk.restore(disk.state())
    disk.history = []
    others(output)
    moments, tails = [*disk.history, disk.moment()], 0
    seen: set[int] = set()
    with here() as scratch:
        view = View(scratch / "file")
        for moment in moments:
            for _, state in moment.tails():
                tails += 1
                if (key := view.of(state)) not in seen:
                    seen.add(key)
                    disk.restore(state)
                    check_kept(output)
    disk.restore(moments[-1].state([], lambda file: file.synced))
    check_kept(output, [ACCEPTED[-1]])
    return Tried(len(moments), tails, len(seen))


def test_a_merge_that_is_cut_leaves_the_former_one_or_can_be_run_again(drill: Drill) -> None:
    with on_a_disk() as disk:
        count(drill, cut_merges(disk))


def cut_merges(disk: SimulatedDisk) -> Tried:
    """Cut the power anywhere in a second merge of the same shards."""
    target = disk.root / "merged"
    folders = shards(disk.root, replace(SMALL, checkpoints=("step-1", "step-2")), disk)
    expected = merged(folders, target)
    assert len(expected) == 6
    disk.restore(disk.state())
    disk.history = []
    merged(folders, target)
    moments, tails = [*disk.history, disk.moment()], 0
    for moment in moments:
        for _, state in moment.tails():
            disk.restore(state)
            assert scores_in(target) == expected, "the former merge is gone"
            assert merged(folders, target) == expected
            tails += 1
    return Tried(len(moments), tails, tails)


def test_whole_runs_of_pytest_are_cut_and_go_on(
    drill: Drill, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(pytester)
    inspect, sync = FakeFormat.inspect, Journal.sync
    monkeypatch.setattr(
        FakeFormat, "inspect", lambda self, path, asked: replace(inspect(self, path, asked), cacheable=True)
    )
    disk = SimulatedDisk(project.path).install(monkeypatch)

    def noted(journal: Journal, *, every: float = 0.0) -> None:
        sync(journal, every=every)
        disk.promised |= {
            one.item for one in read_journal(journal.path.parents[1]) if one.status == "scored" and not every
        }

    monkeypatch.setattr(Journal, "sync", noted)

    def run(name: str) -> Path:
        pytester.runpytest_inprocess(
            *("--checkpoint", "fake:causal", "--eval-data", "data", "-q", "--eval-run-id", name, *ALONE)
        )
        return project.path / "results" / name

    def report(folder: Path) -> dict[str, Any]:
        return report_of(load_summary(folder), list(latest_records(read_journal(folder)).values()))

    whole = run("whole")
    calls, expected = disk.calls, report(whole)
    seeds = drill.seeds(1, 40)
    for seed in seeds:
        draw = random.Random(seed)
        disk.restore({})
        for name in ("first", "second"):
            disk.stop_at = draw.randint(1, calls)
            with suppress(PowerCut):
                run(name)
            assert disk.off or name == "second"  # which may have less to do
            disk.restore(disk.moment().drawn_tail(draw), frozenset(disk.promised))
        promised = set(disk.promised)
        last = run("last")
        assert report(last) == expected, f"seed {seed}"
        asked = {one.item for one in read_journal(last) if one.reused_from is None}
        assert not promised & asked, f"seed {seed}: asked again, though it was synced"
    drill.figure("whole runs of pytest cut twice", len(seeds))
