"""Kills at random moments, in every way to use the product: the same command goes on, and the results are those of a
run that nothing has disturbed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drill.conftest import Drill
from tests.support.forking import Forks
from tests.support.killed_runs import Disturbed, Way, Ways, computed, key, outcome

RUN = ("pytest", "--checkpoint", "fake:causal", "--eval-batch-items", "8")
SERIES = ("pytest", "--checkpoint", "fake:causal", "--checkpoint", "fake:other")
BASE = ("pytest", "--checkpoint", "fake:other", "--eval-run-id", "base")
DONE = ("pytest", "--checkpoint", "fake:causal", "--eval-run-id", "done")
SHARDS = tuple(("pytest", "--checkpoint", "fake:causal", "--eval-shard", f"{n}/2") for n in (1, 2))

WAYS = {
    "run": Way((RUN,)),
    "series": Way((SERIES,)),
    "gate": Way(((*RUN, "--gate", "--baseline", "base"),), prepared=(BASE,)),
    "shards": Way((*SHARDS, ("touchstone", "merge", "results", "-o", "whole")), last="whole"),
    "workers": Way(((*RUN, "-n", "2"),), workers=True),
    "commands": Way(
        (
            ("touchstone", "rescore", "done", "-o", "rescored.csv"),
            ("touchstone", "export", "done", "-o", "exported"),
            ("touchstone", "page", "done", "-o", "page.html"),
            ("touchstone", "compare", "base", "done"),
            ("touchstone", "report", "done"),
        ),
        prepared=(BASE, DONE),
        files=("rescored.csv", "page.html"),
    ),
}

@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    found = Forks(tmp_path_factory.mktemp("forks"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def ways(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(forks, tmp_path_factory.mktemp("ways"))


@pytest.mark.parametrize(
    ("name", "short", "whole"),
    [("run", 4, 240), ("series", 2, 60), ("gate", 1, 50), ("shards", 1, 40), ("workers", 1, 25), ("commands", 1, 15)],
)
def test_commands_that_are_killed_at_any_moment_go_on_and_end_as_if_nothing_had_happened(
    name: str, short: int, whole: int, *, drill: Drill, forks: Forks, ways: Ways, tmp_path: Path
) -> None:
    way = WAYS[name]
    template, right = ways.of(name, way)
    for seed in drill.seeds(short, whole):
        draw = random.Random(f"{name} {seed}")
        disturbed = Disturbed(forks, tmp_path / str(seed), template, draw)
        disturbed.told.append(f"seed {seed} of {name}")
        for number, command in enumerate(way.commands):
            for _ in range(draw.choice((1, 2, 3, 4) if len(way.commands) == 1 else (0, 1, 2))):
                disturbed.disturb(command, right.seconds[number], right.points[number], way.workers)
            disturbed.finish(command, right.codes[number])
        assert outcome(disturbed.folder, way) == right.outcome, disturbed.why("other results")
        twice = [one for one, n in Counter(map(key, computed(disturbed.folder))).items() if n > 1]
        assert way.workers or not twice, disturbed.why(f"scored twice: {twice}")
        drill.figure(f"kills of {name} before its end", disturbed.kills.all)
        drill.figure("kills that met a run with records", disturbed.kills.in_the_middle)
        shutil.rmtree(disturbed.folder)
