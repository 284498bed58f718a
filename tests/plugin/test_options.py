"""Settings that follow from the machine and the environment."""

from __future__ import annotations

import os

import pytest

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.plugin.options import check_device_map, cpu_threads


@pytest.mark.parametrize(
    ("workers", "given", "expected"),
    [
        (1, "", 4),
        (2, "", 2),
        (9, "", 1),
        (1, "3", 3),
        (2, "3", 2),
        (1, "0", 4),
        (1, "many", 4),
        (1, "2,1", 4),
    ],
)
def test_workers_share_the_cores_and_the_environment_may_allow_fewer_threads(
    workers: int, given: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert cpu_threads(workers, {"OMP_NUM_THREADS": given}) == expected


def test_without_a_known_set_of_cores_torch_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cpu_threads(2, {}) is None


@pytest.mark.parametrize(
    ("device", "workers", "wrong"),
    [
        ("auto", 1, None),
        ("cuda", 1, None),
        ("auto", 2, "from one process: leave -n out"),
        ("cuda:1", 1, "--eval-device cuda:1 is one"),
        ("cpu", 1, "--eval-device cpu is one"),
    ],
)
def test_a_model_is_spread_by_one_process_over_all_devices(
    device: str, workers: int, wrong: str | None
) -> None:
    check_device_map({"device_map": None, "device": device}, workers)
    values = {"device_map": "auto", "device": device}
    if wrong is None:
        check_device_map(values, workers)
        return
    with pytest.raises(OptionError, match=wrong):
        check_device_map(values, workers)
