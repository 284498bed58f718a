"""Replicas as actors of Ray on this machine: the same answers as without, also when one of them dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Loglikelihood, LoglikelihoodAnswer, Refusal, Request
from pytest_touchstone.engines.registry import identity, open_engine
from pytest_touchstone.engines.replicas.engine import ReplicatedEngine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import Computed, RayReplicas, Replica
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.simulated_ray import open_alone
from tests.support.tiny import tiny_causal

pytestmark = pytest.mark.slow

SETTINGS = ModelSettings(device="cpu", threads=1, engine="ray:2")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A cluster of this machine, which ends with the tests."""
    ray = pytest.importorskip("ray", reason="the package ray is not installed")
    yield
    ray.shutdown()


def requests(count: int) -> list[Request]:
    return [Loglikelihood(f"{number % 7} and " * (1 + number % 9), f" {number}") for number in range(count)]


def opened(target: str, fingerprint: str | None = None, kind: type[Replica] = Replica) -> ReplicatedEngine:
    info = find_checkpoints([target]).infos[0]
    asked = identity(info) if fingerprint is None else fingerprint
    return open_alone(info, RayReplicas(SETTINGS, target_of("ray:2"), kind), asked)


def test_a_model_gives_the_same_answers_by_two_replicas(tmp_path: Path) -> None:
    tiny_causal(tmp_path / "model", seed=0)
    asked = [*requests(60), *(Generate(f"{number} and", max_new_tokens=4) for number in range(6))]
    one = open_engine(find_checkpoints([str(tmp_path / "model")]).infos[0], SETTINGS)
    right = one.answer(asked)
    engine = opened(str(tmp_path / "model"))
    found = engine.answer(asked)
    engine.close()
    assert engine.usage["replicas"] == 2
    for mine, theirs in zip(found, right, strict=True):
        if isinstance(mine, LoglikelihoodAnswer) and isinstance(theirs, LoglikelihoodAnswer):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        else:
            assert mine == theirs


def test_a_request_that_kills_whatever_computes_it_costs_that_request_alone(tmp_path: Path) -> None:
    once = tmp_path / "once"

    class Dying(Replica):
        def answer(self, requests: Sequence[Request]) -> Computed:
            texts = {getattr(one, "continuation", "") for one in requests}
            first = " 7" in texts and not once.exists()
            if first:
                once.touch()
            if first or " 321" in texts:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().answer(requests)

    engine = opened("fake:causal", kind=Dying)
    asked = requests(400)
    found = engine.answer(asked)
    engine.close()
    right = open_engine(engine.info, SETTINGS).answer(asked)
    assert once.exists()
    assert [number for number, one in enumerate(found) if one != right[number]] == [321]
    assert found[321] == Refusal("the process that computes it has died, 3 times")


def test_another_checkpoint_than_the_one_asked_for_is_refused_by_name() -> None:
    with pytest.raises(
        CheckpointError, match=r"fake-causal: .*: fake:causal has the fingerprint .* 0123456789ab was"
    ):
        opened("fake:causal", fingerprint="0123456789abcdef")
