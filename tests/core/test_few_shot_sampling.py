"""The draw of lm-evaluation-harness: one generator per task, which goes on from row to row.

Its own prompts are in ``tests/conformance/test_lm_eval_prompts.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone import Dataset, LmEval, Loglikelihood, Shots
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import DatasetInfo, DatasetRows, Example
from pytest_touchstone.core.errors import ShotsError
from pytest_touchstone.core.few_shot_sampling import DrawnShots, draw_shots


def shots(**more: Any) -> Shots:
    return Shots(shot=lambda row: row["q"], **{"lm_eval": LmEval(), **more})


def spec(**more: Any) -> Benchmark:
    fields = {"name": "x", "version": 1, "data": Dataset(local="x/test"), "asks": (Loglikelihood,)}
    return Benchmark(**{**fields, "primary": "acc", "shots": shots(), **more})


def rows(name: str, *texts: object, group: str | None = None) -> DatasetRows:
    examples = tuple(
        Example(f"{name}/{n}", group, {"q": str(text)}, f"{name}{n}") for n, text in enumerate(texts)
    )
    info = DatasetInfo(name=name, origin="shipped", path=name, rows=len(texts), sha256="")
    return DatasetRows(info, examples)


def drawn(found: DrawnShots) -> dict[str, list[str]]:
    return {name: [shot.row["q"] for shot in shots] for name, shots in found.before.items()}


def draw(
    benchmark: Benchmark, count: int, dataset: DatasetRows, source: DatasetRows | None = None
) -> DrawnShots:
    return draw_shots(benchmark, count, 7, dataset, source, draw="lm-eval")


@given(st.integers(1, 5), st.integers(1, 20), st.booleans())
def test_the_examples_of_a_row_depend_on_the_rows_before_it_alone(count: int, size: int, own: bool) -> None:
    benchmark, source = spec(shots=shots(lm_eval=LmEval(drops_own=own))), rows("train", *range(10))
    whole = drawn(draw(benchmark, count, rows("x", *range(20)), source))
    begun = drawn(draw(benchmark, count, rows("x", *range(size)), source))
    assert begun == {name: whole[name] for name in begun}
    assert all(len(set(shots)) == count for shots in whole.values())


def test_rows_have_examples_of_their_own_and_another_seed_draws_others() -> None:
    dataset, source = rows("x", *range(8)), rows("train", *range(50))
    found = [
        drawn(draw_shots(spec(), 3, 7, dataset, source, draw=f"lm-eval{seed}"))
        for seed in ("", ":1234", ":5")
    ]
    assert len({tuple(shots) for shots in found[0].values()}) == 8
    assert found[0] == found[1] != found[2]


@given(st.lists(st.integers(0, 3), min_size=8, max_size=12))
def test_what_says_the_same_as_the_row_is_dropped_where_the_task_does_so(texts: list[int]) -> None:
    dataset = rows("x", *texts, *range(10, 14))
    found = drawn(draw(spec(shots=shots(lm_eval=LmEval(drops_own=True))), 3, dataset))
    for example in dataset.examples:
        assert example.row["q"] not in found[example.id]
        assert len(found[example.id]) == 3


def test_the_row_itself_may_be_drawn_where_the_task_drops_nothing() -> None:
    dataset = rows("x", *range(4))
    found = drawn(draw(spec(), 4, dataset))
    assert all(sorted(shots) == ["0", "1", "2", "3"] for shots in found.values())


def test_groups_with_examples_of_their_own_are_tasks_of_their_own() -> None:
    parts = [rows(name, *range(5), group=name) for name in "ab"]
    both = DatasetRows(parts[0].info, tuple(one for part in parts for one in part.examples))
    apart = [drawn(draw(spec(group="q"), 2, part)) for part in parts]
    assert drawn(draw(spec(group="q"), 2, both)) == apart[0] | apart[1]


def test_file_order_is_the_same_in_both_ways() -> None:
    benchmark = spec(shots=shots(pick="first", lm_eval=None))
    dataset, source = rows("x", *range(3)), rows("train", *range(5))
    assert draw(benchmark, 2, dataset, source) == draw_shots(benchmark, 2, 7, dataset, source)


def test_results_tell_the_draw_and_that_it_was_from_part_of_the_rows() -> None:
    dataset, source = rows("x", *range(3)), rows("train", *range(5))
    told = draw(spec(shots=shots(lm_eval=LmEval(1234))), 2, dataset, source).description()
    assert (told["pick"], told["part"]) == ("lm-eval", "5 of 1,234 rows")
    assert "part" not in draw(spec(shots=shots(lm_eval=LmEval(5))), 2, dataset, source).description()
    seeds = (draw_shots(spec(), 2, seed, dataset, source, draw="lm-eval:3").description() for seed in (1, 2))
    assert len({one["sha256"] for one in seeds}) == 1


@pytest.mark.parametrize(
    ("more", "texts", "said"),
    [
        ({"shots": shots(lm_eval=None)}, [1, 2, 3], "how lm-eval draws its few-shot examples is not known"),
        (
            {"data": Dataset(local="x/test", fewshot="train")},
            [1, 2, 3],
            "from x/train, which the shipped data lack",
        ),
        ({}, [1], "2 few-shot examples asked for, but x has 1 row"),
        ({"shots": shots(lm_eval=LmEval(drops_own=True))}, [1, 1, 1, 2], "but x has 1 row"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(more: dict[str, Any], texts: list[int], said: str) -> None:
    with pytest.raises(ShotsError, match=said) as caught:
        draw(spec(**more), 2, rows("x", *texts))
    assert "\n" not in str(caught.value)


def nearest(rows: Any, count: int, row: Any, random: Any) -> Any:
    """The rows whose text is as long."""
    return sorted(rows, key=lambda one: (abs(len(one["q"]) - len(row["q"])), random.random()))[:count]


@pytest.mark.parametrize("way", ["touchstone", "lm-eval"])
def test_a_benchmark_may_pick_the_examples_of_each_row_itself(way: str) -> None:
    benchmark, asked = spec(shots=shots(pick=nearest)), rows("x", "a", "bb", "cc", "d", "eeee")
    found = draw_shots(benchmark, 1, 7, asked, None, draw=way)
    assert [texts[0] for texts in drawn(found).values()][:4] == ["d", "cc", "bb", "a"]
    assert found.description()["pick"] == "nearest"
    assert found == draw_shots(benchmark, 1, 7, asked, None, draw=way)


@pytest.mark.parametrize(
    ("pick", "said"),
    [
        (lambda given, *_: given[:1], "picked 1 rows for x/0, 0 of them unknown; return 2 of the rows"),
        (lambda given, count, row, _: [row, given[0]], "picked 2 rows for x/0, 1 of them unknown"),
    ],
)
def test_a_pick_of_other_rows_is_one_line(pick: Any, said: str) -> None:
    with pytest.raises(ShotsError, match=said):
        draw_shots(spec(shots=shots(pick=pick)), 2, 7, rows("x", 1, 2, 3), None, draw="touchstone")
