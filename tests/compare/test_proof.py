"""The arithmetic of a proof: which items moved, how many show it, and the smallest suite."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.proof import (
    ERRORS,
    Catch,
    MetricTest,
    Proof,
    ProofCell,
    items_that_show,
    logprob_changes,
    read_effects,
    share_moved,
    smallest_suite,
)
from pytest_touchstone.core.errors import GateError


def cell(mutant: str, benchmark: str, items: int | None = None, **more: object) -> ProofCell:
    """A cell whose mutant is caught by bits with so many items, or missed."""
    z = -2.8 if items is not None else -0.1
    tests = (
        MetricTest(metric="acc", difference=-0.05, z=-1.0, items=784),
        MetricTest(metric="bits_per_byte", difference=-0.2, z=z, items=items),
    )
    made = ProofCell(mutant=mutant, kind="norms", benchmark=benchmark, n=100, tests=tests)
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_change_is_the_mean_absolute_one_of_an_items_requests_which_do_not_cancel() -> None:
    sound = {"a": [-1.0, -2.0], "b": [-1.0], "c": [-math.inf, -1.0], "gone": [-1.0]}
    damaged = {"a": [-2.0, -1.0], "b": [-1.0, -1.0], "c": [-math.inf, -1.5]}
    assert logprob_changes(sound, damaged) == {"a": 1.0, "c": 0.25}


def test_an_item_has_moved_if_it_changed_by_more_than_the_other_half_of_the_control() -> None:
    control = {f"{number:03}": 0.001 * (number + 1) for number in range(100)}
    assert share_moved(control, control) <= 0.05
    assert share_moved(dict.fromkeys(control, 1.0), control) == 1.0
    assert share_moved(dict.fromkeys(control, 0.0), control) == 0.0
    half = {name: 1.0 if number < 30 else 0.0 for number, name in enumerate(control)}
    assert share_moved(half, control) == pytest.approx(0.3)
    assert share_moved(dict.fromkeys(control, 1.0), dict(itertools.islice(control.items(), 20))) == 0.0


def test_one_item_in_twenty_of_an_equal_model_moves_by_chance() -> None:
    draw = random.Random(1)
    names = [f"{number:03}" for number in range(60)]
    shares = []
    for _ in range(2000):
        control = {name: draw.expovariate(1) for name in names}
        shares.append(share_moved({name: draw.expovariate(1) for name in names}, control))
    assert 0.03 <= fmean(shares) <= 0.05


@pytest.mark.parametrize(("share", "items"), [(1.0, 2), (0.79, 4), (0.05, None), (0.0, None)])
def test_the_items_that_show_a_share_are_the_first_that_an_equal_model_hardly_moves(
    share: float, items: int | None
) -> None:
    assert items_that_show(share) == items


@given(st.floats(0.2, 1.0))
def test_more_of_the_items_moved_need_fewer_to_show_it(share: float) -> None:
    items = items_that_show(share)
    assert items is not None
    moved = math.floor(share * items + 1e-9)
    tail = math.fsum(
        math.comb(items, count) * 0.05**count * 0.95 ** (items - count) for count in range(moved, items + 1)
    )
    assert tail <= 0.0026


COSTS = st.lists(st.lists(st.none() | st.integers(1, 200), min_size=3, max_size=3), min_size=1, max_size=6)


@given(COSTS)
def test_the_smallest_suite_catches_all_that_can_be_caught_with_the_fewest_benchmarks(
    costs: list[list[int | None]],
) -> None:
    cells = [
        cell(f"m{mutant}", f"b{benchmark}", items)
        for mutant, row in enumerate(costs)
        for benchmark, items in enumerate(row)
    ]
    suite = smallest_suite({made: made.worse for made in cells})
    can = {f"m{index}": row for index, row in enumerate(costs) if any(row)}
    assert set(suite.catches) == set(can)
    for row in can.values():
        assert any((row[int(name[1:])] or 999) <= items for name, items in suite.items.items())
    for fewer in itertools.combinations(range(3), max(0, len(suite.items) - 1)):
        assert (
            not can
            or len(fewer) == len(suite.items)
            or not all(any(row[b] for b in fewer) for row in can.values())
        )


def test_the_smallest_suite_of_dozens_of_benchmarks_is_found_at_once() -> None:
    catches = {
        cell(f"m{mutant}", f"b{benchmark}"): Catch(1 + benchmark, "acc")
        for mutant in range(25)
        for benchmark in range(60)
        if benchmark % 30 == mutant or benchmark == 0 < mutant < 25
    }
    catches |= {cell(f"only{number}", f"c{number}"): Catch(7, "acc") for number in range(20)}
    suite = smallest_suite(catches)
    assert list(suite.items) == ["b0", *(f"c{n}" for n in range(20))]


def test_the_smallest_suite_of_more_benchmarks_than_can_be_tried_is_found_too() -> None:
    """Each mutant is caught by 3 of 80 benchmarks: some 20 are needed, and so many have too many subsets."""
    draw = random.Random(2)
    catches = {
        cell(f"m{mutant}", f"b{benchmark}"): Catch(1 + benchmark, "acc")
        for mutant in range(40)
        for benchmark in draw.sample(range(80), 3)
    }
    suite = smallest_suite(catches)
    chosen = {made.mutant for made in catches if made.benchmark in suite.items}
    assert chosen == set(suite.catches) == {f"m{mutant}" for mutant in range(40)}
    assert 14 <= len(suite.items) <= 24


def test_a_mutant_is_caught_by_the_metric_that_needs_the_fewest_items_or_by_items_in_error() -> None:
    caught = cell("a", "x", 50)
    assert caught.worse == Catch(50, "bits_per_byte")
    assert cell("a", "x").worse is None
    assert (cell("a", "x", faults=3).worse, cell("a", "x", faults=3).other) == (ERRORS, ERRORS)
    assert cell("a", "x", items_to_move=90).other == Catch(90, "log-probabilities")
    assert cell("a", "x", items_to_move=101).other is None


def test_what_does_not_apply_is_neither_caught_nor_missed() -> None:
    cells = (
        cell("a", "x", 50),
        cell("b", "x"),
        ProofCell(mutant="c", kind="eos", benchmark="x", why="it changes generated texts alone"),
        replace(cell("d", "x"), tests=(MetricTest(metric="acc", difference=-0.2, z=-3.0, items=88),)),
        replace(cell("e", "x"), tests=(MetricTest(metric="acc", difference=-0.1, z=-2.9, items=94),)),
    )
    proof = Proof(checkpoint="m", benchmarks={"x": 100}, cells=cells, control=())
    assert set(proof.applicable) == {"a", "b", "d", "e"}
    assert proof.missed == ["b"]
    assert (proof.worse.items, proof.worse.metrics) == ({"x": 94}, {"x": ["acc", "bits_per_byte"]})
    assert proof.effects == {"x": {"acc": 0.1, "bits_per_byte": 0.2}}


def test_what_could_not_be_run_is_neither_caught_nor_missed_nor_not_applicable() -> None:
    cells = (
        ProofCell(mutant="big", kind="weights", benchmark="x", error="MemoryError"),
        ProofCell(mutant="half", kind="weights", benchmark="x", error="MemoryError"),
        cell("half", "y", 50),
    )
    proof = Proof(checkpoint="m", benchmarks={"x": 100, "y": 100}, cells=cells, control=())
    assert (set(proof.applicable), proof.missed) == ({"half"}, [])
    assert set(proof.failed) == {"big"}
    assert proof.worse.catches == ("half",)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"schema": 1, "kind": "plan"}', '{"schema": 1, "kind": "proof"}'),
        *(
            f'{{"schema": 1, "kind": "proof", "effects": {text}}}'
            for text in ('{"x": 1}', '{"x": {"acc": -1}}')
        ),
        '{"schema": 1, "kind": "proof", "effects": {"x": {"acc": NaN}}}',
    ],
)
def test_a_file_that_is_no_proof_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(GateError) as refused:
        read_effects(path)
    assert str(refused.value).count("\n") == 0
    assert str(path.name) in str(refused.value)
