"""What a replica's process says when it has loaded; no Ray is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.engines.registry import identity, open_engine
from pytest_touchstone.engines.replicas.ray_replicas import Replica, WantedCheckpoint
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.tiny import tiny_causal


@pytest.mark.parametrize(("batch", "texts"), [(None, 64), (7, 7)])
def test_a_replica_says_how_many_texts_its_engine_continues_together(
    tmp_path: Path, batch: int | None, texts: int
) -> None:
    info = find_checkpoints([str(tiny_causal(tmp_path / "model"))]).infos[0]
    settings = ModelSettings(device="cpu", batch=batch)
    assert Replica(settings).load(WantedCheckpoint(info.plain(), identity(info))).texts == texts
    assert open_engine(info, settings).texts_together == texts


def test_an_engine_that_does_not_say_leaves_it_open() -> None:
    info = find_checkpoints(["fake:causal"]).infos[0]
    said = Replica(ModelSettings()).load(WantedCheckpoint(info.plain(), identity(info)))
    assert (said.fault, said.texts) == (None, None)
