"""The drill: what the harness withstands, in figures.

`pytest tests/drill` is the short form, which every change runs; `tox -e drill` is the whole (`--run-slow`). A failure
names the seed that replays it: `pytest tests/drill/test_FILE.py::TEST --drill-seed SEED`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.forking import Forks

FIGURE = "drill"


@dataclass(frozen=True, slots=True)
class Drill:
    """How much of the drill is run, and where its figures go."""

    whole: bool
    first_seed: int | None
    properties: list[tuple[str, object]]

    def seeds(self, short: int, whole: int) -> range:
        """The seeds to try: that many in the short form and in the whole, or the one that is to be replayed."""
        if self.first_seed is not None:
            return range(self.first_seed, self.first_seed + 1)
        return range(whole if self.whole else short)

    def figure(self, name: str, value: int) -> None:
        """Add to a figure of the table at the end (crash points tried, scores lost, ...)."""
        self.properties.append((FIGURE, (name, value)))


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """The process from which commands are forked."""
    with closing(Forks(tmp_path_factory.mktemp("forks"))) as started:
        yield started


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> Drill:
    config = request.config
    seed = config.getoption("--drill-seed")
    return Drill(bool(config.getoption("--run-slow")), seed, request.node.user_properties)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that all is in."""
    folder = tmp_path_factory.mktemp("special")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    gc.freeze()  # nothing that is there is looked at, and copied, in the processes
    yield folder
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    figures: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == FIGURE and report.when == "call":
                    figures[value[0]] = figures.get(value[0], 0) + value[1]
    if figures:
        terminalreporter.section("drill")
    for name, number in figures.items():
        terminalreporter.write_line(f"{number:>9,}  {name}")
