"""A checkpoint for the tests of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.engines.transformers.cpu import kernels, packing, processor
from tests.support.families import causal_of


@pytest.fixture(params=["MKL", "oneDNN", "own"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that is taken to compute faster here, one after the other, whatever the processor is."""
    name: str = request.param
    for module in (packing, processor):
        monkeypatch.setattr(module, "mkl_is_faster", lambda: name == "MKL")
    own = kernels.kernels() if name == "own" else None
    monkeypatch.setattr(packing, "kernels", lambda: own)
    monkeypatch.setattr(packing, "multiplies_by_tiles", lambda: own is not None)
    return name


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot use the kernels."""
    monkeypatch.setattr(kernels, "_load_once", lambda: (None, "there is no C compiler (cc or gcc)"))


@pytest.fixture(params=["by kernels", "by torch"])
def step_way(request: pytest.FixtureRequest) -> str:
    """How steps are computed, one after the other."""
    name: str = request.param
    if name == "by torch":
        request.getfixturevalue("no_kernels")
    return name


@pytest.fixture(params=["by itself", "in float32"])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How half precision is taken to be multiplied here, one after the other, whatever the processor is."""
    name: str = request.param
    monkeypatch.setattr(processor, "multiplies", lambda _: name == "by itself")
    return name


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of the family that most models belong to; tests leave it as it is."""
    return causal_of(tmp_path_factory.mktemp("llama"), "llama")
