"""pytest's order of items, found for siblings together."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from _pytest import fixtures

from pytest_touchstone.plugin.reordering import in_order
from tests.support.project import Project

SCOPED = """
import pytest
from pytest_touchstone import Loglikelihood, benchmark


@pytest.fixture(scope="session", params=["a", "b"])
def everywhere(request):
    return request.param


@pytest.fixture(scope="module", params=[1, 2])
def here(request):
    return request.param


def asked(example, more):
    answer = yield Loglikelihood(example["q"], f" {more}")
    return {"acc": answer.is_greedy}


@benchmark(name="one", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_one(example, everywhere, here):
    return (yield from asked(example, here))


@benchmark(name="two", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_two(example, here):
    return (yield from asked(example, here))


@pytest.mark.parametrize("style", ["polite", "terse"], scope="module")
@benchmark(name="three", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_three(example, everywhere, style):
    return (yield from asked(example, style))


@benchmark(name="four", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_four(example):
    return (yield from asked(example, ""))


def test_plain(here):
    pass
"""

REORDER = fixtures.reorder_items
TOGETHER = hasattr(fixtures, "ParamValueKey")
"""Before pytest 9.2, siblings have parameters of a session that pytest takes to be different."""


class Orders:
    """Compares the order of siblings together with pytest's, for many orders before."""

    def __init__(self) -> None:
        self.most = self.compared = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        draw = random.Random(0)

        def counted(some: list[pytest.Item]) -> list[pytest.Item]:
            self.most = max(self.most, len(some))
            return REORDER(some)

        for count, shuffled in product((1, 3, 10, len(items)), (0, 1, 5, 40)):
            some = list(items)
            for _ in range(shuffled):
                begin, end = sorted(draw.sample(range(len(some) + 1), 2))
                some = [*some[end:], *some[begin:end], *some[:begin]]
            some = some[:count]
            assert in_order(some, counted) == REORDER(some)
            self.compared += 1
        self.most = 0
        in_order(items, counted)


def test_siblings_go_where_pytest_would_send_each_of_them(project: Project) -> None:
    project.rows(6)
    (project.path / "test_sums.py").write_text(SCOPED)
    orders = Orders()
    result = project.run("--collect-only", "-q", plugins=[orders])
    assert orders.compared == 16, result.stdout.str()
    items = [line for line in result.outlines if "::" in line]
    assert len(items) > 60
    assert orders.most < len(items) / 5 or not TOGETHER


def test_an_item_whose_parameters_were_changed_is_ordered_by_itself(project: Project) -> None:
    project.rows(6)
    seen: list[int] = []

    class Changed:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            in_order(items[:3], self.count)
            items[1].callspec.indices["example"] = 99
            in_order(items[:3], self.count)

        def count(self, some: list[pytest.Item]) -> list[pytest.Item]:
            seen.append(len(some))
            return some

    project.run("--collect-only", plugins=[Changed()])
    assert seen == [1 if TOGETHER else 3, 3]
