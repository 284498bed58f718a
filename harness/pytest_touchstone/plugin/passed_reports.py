"""The reports of items that passed, as pytest's terminal keeps them: three for each item, to the end of the session.

Of a benchmark item that passed without a word, its times and properties are kept; the report is made again when
somebody looks at it, as ``-rA`` and ``--durations`` do. All other reports are kept as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final

import pytest
from _pytest.subtests import failed_subtests_key  # private: an entry for each item, never taken out

from pytest_touchstone.plugin.benchmark_items import NODE_ID, BenchmarkItem

PLAIN: Final = frozenset(
    {
        *("_id", "_nodeid", "nodeid", "location", "keywords", "outcome", "longrepr", "when", "sections"),
        *("duration", "start", "stop", "user_properties"),
    }
)
"""The attributes of a report that can be made again."""

ATOMS: Final = (str, int, float, type(None))

MOST_ALIKE: Final = 10_000
"""Properties of reports that are kept once for all that have them."""


class PassedReport(pytest.TestReport):
    """A report that is filled when somebody looks at it."""

    __slots__ = ("_item", "_properties", "_times")
    __test__ = False

    def __init__(
        self, item: BenchmarkItem, when: str, properties: tuple[Any, ...], times: array[float]
    ) -> None:
        self._item, self._properties, self._times = item, properties, times
        self.when, self.duration = when, times[2]  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name not in PLAIN or "outcome" in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._fill()
        return getattr(self, name)

    def _fill(self) -> None:
        item, (start, stop, duration) = self._item, self._times
        super().__init__(
            getattr(item, NODE_ID),
            item.location,
            dict.fromkeys(item.keywords, 1),
            "passed",
            None,
            self.when,
            duration=duration,
            start=start,
            stop=stop,
            user_properties=self._properties,
        )
        item.rest(ran=True)

    def _to_json(self) -> dict[str, Any]:
        if "outcome" not in vars(self):
            self._fill()
        return super()._to_json()


class PassedReports(list[Any]):
    """A list of reports, which has items in the place of some; what it has, and returns, are reports."""

    def __init__(self, reports: Iterable[Any] = ()) -> None:
        super().__init__()
        self._times = array("d")
        self._said: list[tuple[str, tuple[Any, ...]] | None] = []
        self.extend(reports)

    def shrink(self, item: BenchmarkItem, said: tuple[str, tuple[Any, ...]]) -> None:
        """Keep of the last report the item that it is about, and when it was made, with its properties."""
        report = super().__getitem__(-1)
        super().__setitem__(-1, item)
        self._said[-1] = said
        self._times[-3:] = array("d", (report.start, report.stop, report.duration))

    def append(self, report: Any) -> None:
        """Append a report."""
        self.extend((report,))

    def extend(self, reports: Iterable[Any]) -> None:
        """Append reports."""
        before = len(self)
        super().extend(reports)
        self._said.extend([None] * (len(self) - before))
        self._times.extend((0.0, 0.0, 0.0) * (len(self) - before))

    def __iter__(self) -> Iterator[Any]:
        for place in range(len(self)):
            yield self._at(place)

    def __reversed__(self) -> Iterator[Any]:
        for place in reversed(range(len(self))):
            yield self._at(place)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._at(one) for one in range(len(self))[place]]
        return self._at(range(len(self))[place])

    def _at(self, place: int) -> Any:
        found, said = super().__getitem__(place), self._said[place]
        if said is None:
            return found
        return PassedReport(found, *said, self._times[3 * place : 3 * place + 3])

    def __add__(self, others: Any) -> list[Any]:
        return [*self, *others]

    def __radd__(self, others: Any) -> list[Any]:
        return [*others, *self]

    def __iadd__(self, others: Iterable[Any]) -> PassedReports:  # type: ignore[misc]
        self.extend(others)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def copy(self) -> list[Any]:
        """Return a list of all reports."""
        return list(self)

    def make_all(self) -> None:
        """Make all reports: what is done to the list from now on is done to them."""
        whole = list(self)
        self._said, self._times = [None] * len(whole), array("d", bytes(24 * len(whole)))
        super().__setitem__(slice(None), whole)


def _of_all(name: str) -> Callable[..., Any]:
    plain = getattr(list, name)

    def change(self: PassedReports, *args: Any, **more: Any) -> Any:
        self.make_all()
        found = plain(self, *args, **more)
        self._said = [None] * len(self)
        self._times = array("d", bytes(24 * len(self)))
        return found

    return change


for _name in (
    *("insert", "remove", "pop", "clear", "sort", "reverse", "index", "count"),
    *("__setitem__", "__delitem__", "__contains__", "__eq__", "__ne__", "__imul__", "__mul__", "__rmul__"),
):
    setattr(PassedReports, _name, _of_all(_name))


class Reported(set[Any]):
    """The ids of items that were reported, of which terminals want the number; those of an item come together."""

    def __init__(self) -> None:
        super().__init__()
        self._last: object = None
        self._count = 0

    def add(self, one: Any) -> None:
        """Count the item, unless it is the last that was counted."""
        if one != self._last:
            self._last, self._count = one, self._count + 1

    def __len__(self) -> int:
        return self._count


class SmallReports:
    """Hooks of a process that runs items and reports them."""

    def __init__(self, config: pytest.Config) -> None:
        self._manager = config.pluginmanager
        self._stash = config.stash
        self._alone = config.getoption("dist", "no") == "no"
        # With the times of items beside them, the terminal looks at all reports again and again.
        self._whole = self._manager.has_plugin("terminal") and (
            config.getini("console_output_style") == "times"
        )
        self._item: BenchmarkItem | None = None
        self._alike: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Let the terminal count what is reported."""
        reporter: Any = self._manager.get_plugin("terminalreporter")
        # Private: it is a set for xdist alone, where reports of several items come at the same time.
        if self._alone and getattr(reporter, "_progress_nodeids_reported", None) == set():
            reporter._progress_nodeids_reported = Reported()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if not isinstance(item, BenchmarkItem):
            return (yield)
        self._item = item
        item.siblings.runs(item.example)
        try:
            return (yield)
        finally:
            self._item = None
            failed: Any = self._stash.get(failed_subtests_key, None)
            key = getattr(item, NODE_ID)
            if failed and not failed.get(key):
                failed.pop(key, None)  # looking for it has made an entry
            item.rest(ran=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        found = yield
        if self._item is not None and report.passed and not self._whole:
            self._keep(report, self._item)
        return found

    def _keep(self, report: pytest.TestReport, item: BenchmarkItem) -> None:
        """Keep what is needed to make the report again, if that is all there is to it."""
        if report.sections or report.longrepr is not None or not vars(report).keys() <= PLAIN:
            return
        stats = getattr(self._manager.get_plugin("terminalreporter"), "stats", {})
        kept = stats.get("passed" if report.when == "call" else "")
        if not kept or list.__getitem__(kept, -1) is not report or report.nodeid != item.nodeid:
            return
        said = self._said(report)
        if said is None:
            return
        if not isinstance(kept, PassedReports):
            kept = stats["passed" if report.when == "call" else ""] = PassedReports(kept)
        kept.shrink(item, said)

    def _said(self, report: pytest.TestReport) -> tuple[str, tuple[Any, ...]] | None:
        """Return when a report was made, with its properties; None where these could be changed."""
        properties = report.user_properties
        if not all(type(value) in (*ATOMS, bool) for _, value in properties):
            return None
        key = report.when, repr(properties) if properties else ""
        if (found := self._alike.get(key)) is None:
            found = report.when, tuple(properties)
            if len(self._alike) < MOST_ALIKE:
                self._alike[key] = found
        return found
