"""Shipped files are found in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.core import files as module
from tests.support.places import ROOT


def test_a_checkout_has_them_in_fixtures() -> None:
    assert module.shipped("data") == ROOT / "fixtures" / "data"
    assert module.shipped("data").is_dir()


def test_a_wheel_has_them_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_shipped").mkdir()
    monkeypatch.setattr(module, "_HERE", tmp_path)
    assert module.shipped("data", "x") == tmp_path / "_shipped" / "data" / "x"
