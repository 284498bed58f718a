"""On a played Ray, whatever is killed, and whenever: no item is lost, none is scored twice, and no score changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.engines.registry import identity
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import RayReplicas
from tests.drill.conftest import Drill
from tests.engines.replicas.test_schedule import fake
from tests.support.killed_replicas import (
    SETTINGS,
    Plan,
    killed_run,
    poisoned,
    records_of,
    run_items,
    unkilled,
)
from tests.support.simulated_ray import KillsNodeError, KillsProcessError, SimulatedRay, open_alone


def check_seed(seed: int, right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(seed)
    folders, cluster = killed_run(plan, tmp_path, monkeypatch)
    found, often = records_of(folders)
    told = "\n".join([f"seed {seed}", *cluster.happened])
    expected = {f"t::{n}": right[f"t::{n}"] for n in range(plan.items)}
    if plan.poison is not None:
        guilty = f"t::{plan.poison}"
        status, _, _ = found.pop(guilty)
        assert status == "error", told
        del expected[guilty]
    assert found == expected, told
    assert set(often.values()) == {1}, told


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return unkilled(400, tmp_path_factory.mktemp("right"))


def test_nothing_is_lost_double_or_changed_in_a_simulated_run(
    drill: Drill, right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in drill.seeds(10, 150):
        check_seed(seed, right, tmp_path / str(seed), monkeypatch)
        drill.figure("runs on a played Ray in which things die", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [KillsProcessError, KillsNodeError])
def test_an_item_among_ten_thousand_that_kills_two_replicas_is_found_and_all_others_scored(
    kills: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(0)
    plan.poison, plan.kills = 6789, kills
    cluster = SimulatedRay([1, 1], seconds=lambda method, _: 0.1)
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.start", lambda target: cluster)
    monkeypatch.setattr(
        "pytest_touchstone.engines.replicas.ray_replicas.node_here", lambda: cluster.node_here
    )
    info = fake()
    transport = RayReplicas(SETTINGS, target_of("ray:2"), poisoned(plan))
    engine = open_alone(info, transport, identity(info))
    run_items(range(10_000), engine, tmp_path / "run", batch=4096)
    found, often = records_of([tmp_path / "run"])
    assert [item for item, (status, _, _) in found.items() if status != "scored"] == ["t::6789"]
    assert len(found) == 10_000
    assert set(often.values()) == {1}
