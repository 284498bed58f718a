"""An item that several killed runs had in flight is computed alone, and then given up.

``tests/drill/test_poison.py`` kills processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from pytest_touchstone.checkpoints.formats import FakeFormat
from pytest_touchstone.results.journal import read_journal
from pytest_touchstone.results.reuse import InFlight, ItemKey
from tests.support.project import Project


@pytest.fixture
def killable(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose answers by the fake checkpoint are taken from earlier runs as those of any other."""
    inspect = FakeFormat.inspect
    monkeypatch.setattr(FakeFormat, "inspect", lambda *asked: replace(inspect(*asked), cacheable=True))
    project.rows(60)
    return project


def test_items_that_were_in_flight_twice_run_alone_and_after_two_more_kills_not_at_all(
    killable: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[list[str]] = []
    begin = InFlight.begin

    def noting(self: InFlight, items: Iterable[ItemKey]) -> None:
        kept = list(items)
        noted.append([one.example for one in kept])
        begin(self, kept)

    def left_by(run: str, *numbers: int, who: str = "main") -> None:
        """A run that scored two items, and was killed with others in flight."""
        assert killable.run("--eval-run-id", run, "--eval-limit", "2").ret == 0
        items = [["fake-causal", "sums", f"sums/{number}"] for number in numbers]
        (killable.path / "results" / run / "details" / f"in-flight-{who}.json").write_text(
            json.dumps({"items": items})
        )

    monkeypatch.setattr(InFlight, "begin", noting)
    for run in "ab":
        left_by(run, 5, 6, 7)
    noted.clear()
    assert killable.run("--eval-run-id", "c", "--eval-limit", "20").ret == 0
    assert [one for one in noted if len(one) == 1] == [["sums/5"], ["sums/6"], ["sums/7"]]
    for run in "defg":
        left_by(run, 30)
    for run in "ij":
        left_by(run, 40, who="gw1")
    result = killable.run("--eval-run-id", "h")
    assert result.ret == 9
    (lost,) = (one for one in read_journal(killable.path / "results" / "h") if one.status != "scored")
    assert lost.example == "sums/30"
    assert not (killable.path / "results" / "h" / "details" / "in-flight-main.json").exists()
    assert "killed 4 times" in str(lost.message)
    result.stdout.fnmatch_lines(["*sums/30*"])
