"""Settings that follow from the machine and the environment."""

from __future__ import annotations

import os

import pytest

from harness.plugin.options import cpu_threads


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
