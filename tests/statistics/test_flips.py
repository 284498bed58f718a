"""Items that change between checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.statistics.intervals import mcnemar_p
from pytest_touchstone.statistics.paired import changed, changed_by_chance, paths
from tests.support.known import known

RIGHT = st.sampled_from([0.0, 1.0])


@st.composite
def curves(draw: st.DrawFn) -> list[list[float]]:
    n = draw(st.integers(1, 12))
    return draw(st.lists(st.lists(RIGHT, min_size=n, max_size=n), min_size=2, max_size=6))


@settings(deadline=None)
@given(columns=curves())
def test_every_item_goes_one_way(columns: list[list[float]]) -> None:
    ways = paths(columns)
    assert sorted(place for way in ways for place in way) == list(range(len(columns[0])))
    kept, never = set(ways.kept), set(ways.never)
    assert kept == {place for place, one in enumerate(zip(*columns, strict=True)) if all(one)}
    assert never == {place for place, one in enumerate(zip(*columns, strict=True)) if not any(one)}


@settings(deadline=None)
@given(columns=curves())
def test_backwards_what_was_learned_is_lost(columns: list[list[float]]) -> None:
    ways, back = paths(columns), paths(columns[::-1])
    assert (ways.learned, ways.lost, ways.unsteady) == (back.lost, back.learned, back.unsteady)


@settings(deadline=None)
@given(columns=curves())
def test_forgotten_and_learned_make_up_the_change_of_the_score(columns: list[list[float]]) -> None:
    before, after = columns[:2]
    found = changed(before, after)
    assert len(found.learned) - len(found.forgotten) == sum(after) - sum(before)
    assert found.p == mcnemar_p(len(found.learned), len(found.forgotten))
    assert all(before[place] == 1 and after[place] == 0 for place in found.forgotten)


def test_of_several_samples_the_majority_counts() -> None:
    found = changed([0.6, 0.5, 1.0], [0.4, 0.75, 0.8])
    assert (found.forgotten, found.learned) == ((0,), (1,))


def test_other_items_are_refused() -> None:
    with pytest.raises(ValueError, match="compare the same items"):
        changed([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="two or more checkpoints"):
        paths([[1.0]])


def test_one_sample_of_each_item_tells_nothing_of_chance() -> None:
    assert changed_by_chance([1.0, 0.0], [0.0, 0.0], 1) is None


@pytest.mark.parametrize("samples", [3, 5, 10])
def test_the_changes_of_one_model_asked_twice_are_those_expected(samples: int) -> None:
    """On 4,000 items of any difficulty the expected number is within a tenth of the one that comes about."""
    generator = np.random.default_rng(samples)
    share = generator.beta(0.6, 0.6, 4000)
    one, other = (generator.binomial(samples, share) / samples for _ in range(2))
    found = changed(one.tolist(), other.tolist())
    expected = known(changed_by_chance(one.tolist(), other.tolist(), samples))
    assert expected == pytest.approx(len(found.forgotten) + len(found.learned), rel=0.1)
