"""The mark beside a value says how few items it is over, and never more than is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.coverage import BenchmarkSize, composite_mark, coverage_mark, largest_size
from tests.support.lines import numbers

SHIPPED = BenchmarkSize(of=32, rows=32, published=2376)
HALF = BenchmarkSize(of=1188, rows=1188, published=2376)


def test_a_shipped_sample_says_of_how_many() -> None:
    assert coverage_mark(32, SHIPPED, origin="shipped") == "sample: 32 of 2,376"


def test_a_part_of_a_shipped_sample_says_both() -> None:
    mark = coverage_mark(4, SHIPPED, origin="shipped")
    assert (numbers(mark), "sample" in mark) == ([4, 32, 2376], True)


def test_a_part_of_a_set_without_declaration_says_how_many_of_its_items() -> None:
    assert coverage_mark(12, BenchmarkSize(of=56, rows=56), origin="shipped") == "12 of 56 items"


def test_shipped_rows_that_nobody_published_say_what_they_are() -> None:
    twelve = BenchmarkSize(of=12, rows=12, published=165)
    for items, counted in ((12, [12]), (3, [3, 12])):
        mark = coverage_mark(items, twelve, origin="shipped", own_rows="own problems")
        assert (numbers(mark), mark.endswith("own problems")) == (counted, True)


def test_rows_of_somebodys_own_are_no_sample_but_their_number_is_told() -> None:
    assert coverage_mark(1188, HALF, origin="--eval-data") == "1,188 rows, 2,376 published"
    assert numbers(coverage_mark(4, HALF, origin="--eval-data")) == [4, 1188, 2376]
    more = BenchmarkSize(of=5000, rows=5000, published=500)
    assert coverage_mark(5000, more, origin="hub") == "5,000 rows, 500 published"
    assert (
        coverage_mark(1, BenchmarkSize(of=1, rows=1, published=500), origin="hub") == "1 row, 500 published"
    )


def test_as_many_rows_as_were_published_have_no_mark() -> None:
    whole = BenchmarkSize(of=164, rows=164, published=164)
    assert (
        coverage_mark(164, whole, origin="shipped")
        == ""
        == coverage_mark(164, whole, origin="--eval-data", own_rows="ours")
    )


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert (
        coverage_mark(7, BenchmarkSize(), origin="shipped")
        == ""
        == coverage_mark(7, BenchmarkSize(of=7, rows=7), origin="--eval-data")
    )


def test_a_composite_says_the_items_of_all_its_benchmarks_and_which_of_them_are_samples() -> None:
    parts = [("real_coref", 200, 400, ""), ("ko_lambada", 600, 600, "600 rows, 2,255 published")]
    of_all, of_part = composite_mark(parts).split("ko_lambada ")
    assert numbers(of_all) == [800, 1000]
    assert of_part == parts[1][3]
    assert composite_mark([("real_coref", 400, 400, ""), ("ko_lambada_wiki", 200, 200, "")]) == ""


@given(
    n=st.integers(0, 20_000),
    of=st.integers(0, 20_000),
    published=st.none() | st.integers(1, 20_000),
    origin=st.sampled_from(["shipped", "hub", "--eval-data"]),
)
def test_whatever_is_over_fewer_items_is_marked_with_both_numbers(
    n: int, of: int, published: int | None, origin: str
) -> None:
    found = coverage_mark(n, BenchmarkSize(of=of, rows=of, published=published), origin=origin)
    assert (f"{n:,} of {of:,} items" in found) == (n < of)
    assert bool(found) == (n < of or published not in (None, of))


def test_the_largest_number_of_a_mark_is_the_size_of_the_set() -> None:
    assert largest_size(coverage_mark(4, HALF, origin="hub")) == 2376
    assert largest_size(coverage_mark(32, SHIPPED, origin="shipped")) == 2376
    assert largest_size("sample: problems of our own") == largest_size("") == 0
