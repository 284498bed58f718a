"""The maker of the processor decides which library computes, not a clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_touchstone.engines.transformers import processor


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    processor.mkl_is_faster.cache_clear()
    yield
    processor.mkl_is_faster.cache_clear()


@pytest.mark.parametrize(
    ("description", "windows", "faster"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\n", "", True),
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\n", "", False),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "", False),
        (None, "Intel64 Family 6 Model 173 Stepping 1, GenuineIntel", True),
        (None, "AMD64 Family 26 Model 2 Stepping 1, AuthenticAMD", False),
        (None, "arm", False),
    ],
)
def test_mkl_computes_on_intels_processors(
    description: str | None, windows: str, faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    path = tmp_path / "cpuinfo"
    if description is not None:
        path.write_text(description, encoding="utf-8")
    monkeypatch.setattr(processor, "DESCRIPTION", path)
    monkeypatch.setattr("platform.processor", lambda: windows)
    assert processor.mkl_is_faster() == (faster and torch.backends.mkl.is_available())


def test_a_torch_without_mkl_uses_the_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert not processor.mkl_is_faster()
