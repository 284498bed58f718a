"""A checkpoint for the tests of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engines.transformers import half_precision, packing, split_attention
from tests.support.families import causal_of


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that is taken to compute faster here, one after the other, whatever the processor is."""
    name: str = request.param
    for module in (packing, split_attention):
        monkeypatch.setattr(module, "mkl_is_faster", lambda: name == "MKL")
    return name


@pytest.fixture(params=["by itself", "in float32"])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How half precision is taken to be multiplied here, one after the other, whatever the processor is."""
    name: str = request.param
    monkeypatch.setattr(half_precision, "multiplies", lambda _: name == "by itself")
    return name


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of the family that most models belong to; tests leave it as it is."""
    return causal_of(tmp_path_factory.mktemp("llama"), "llama")
