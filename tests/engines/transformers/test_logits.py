"""The log-probabilities of targets are those of all logits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.logits import read_targets

NUMBERS = st.floats(-60, 60, width=32)


@pytest.fixture(params=["by kernels", "by torch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute sums of exponentials both ways, where there are kernels."""
    if request.param == "by torch":
        monkeypatch.setattr(cpu, "has_kernels_for", lambda _: False)


@given(st.lists(st.lists(NUMBERS, min_size=7, max_size=7), min_size=1, max_size=20), st.data())
def test_a_target_has_its_share_of_the_exponentials(table: list[list[float]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=30))
    targets = data.draw(st.lists(st.integers(0, 6), min_size=len(rows), max_size=len(rows)))
    found = read_targets(torch.tensor(table), rows, targets)
    for row, target, (logprob, most_probable) in zip(rows, targets, found, strict=True):
        numbers = table[row]
        total = math.fsum(math.exp(one - max(numbers)) for one in numbers)
        assert logprob == pytest.approx(numbers[target] - max(numbers) - math.log(total), abs=1e-4)
        assert most_probable == (numbers.index(max(numbers)) == target)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 40])
def test_rows_of_a_large_vocabulary_are_as_exact_as_in_double_precision(count: int) -> None:
    logits = 8 * torch.randn(count, 50_000, generator=torch.Generator().manual_seed(count))
    before = logits.clone()
    found = read_targets(logits, range(count), range(count))
    exact = logits.double().log_softmax(-1)
    for row, (logprob, _) in enumerate(found):
        assert logprob == pytest.approx(float(exact[row, row]), abs=5e-6)
    assert torch.equal(logits, before), "the logits stay as they are"


def test_what_is_ruled_out_counts_for_nothing_and_no_number_is_none() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0], [-math.inf, -math.inf, -math.inf], [math.nan, 1.0, 2.0]])
    found = read_targets(logits, [0, 0, 1, 2], [0, 1, 0, 1])
    assert found[0][0] == pytest.approx(-math.log(2))
    assert found[0][1], "the first of equals"
    assert found[1] == (-math.inf, False)
    assert math.isnan(found[2][0])
    assert math.isnan(found[3][0])


def test_no_rows_have_no_scores() -> None:
    assert read_targets(torch.empty(0, 5), [], []) == []
