"""Stand-ins give way to the modules they stand for, whoever asks, and however."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_touchstone.engines.transformers.late_modules import Late, OnceImported, standing_in


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package whose module ``low`` needs the package to be whole."""
    name = f"late_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("from .low import number\nthere = True\n")
    (folder / "low.py").write_text(f"import {name}\nnumber = 7\nassert {name}.__name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_stand_in_goes_when_its_block_ends(package: str) -> None:
    finders = list(sys.meta_path)
    with standing_in(Late(package)):
        assert __import__(package) is sys.modules[package]
        assert not hasattr(sys.modules[package], "__file__")
    assert package not in sys.modules
    assert sys.meta_path == finders
    assert __import__(package).there


def test_what_is_asked_of_a_stand_in_is_the_modules_own(package: str) -> None:
    with standing_in(Late(package)):
        stand_in = __import__(package)
        assert stand_in.number == 7
        assert sys.modules[package] is not stand_in
        with pytest.raises(AttributeError, match="absent"):
            _ = stand_in.absent
    assert stand_in.there
    assert sys.modules[package].there


def test_a_module_below_a_stand_in_is_imported_after_the_whole_and_once(package: str) -> None:
    with standing_in(Late(package)):
        low = __import__(f"{package}.low", fromlist=["number"])
        assert sys.modules[package].low is low is sys.modules[f"{package}.low"]
        assert low.__spec__.origin.endswith("low.py")
    assert sys.modules[package].there


def test_blocks_may_lie_within_each_other(package: str) -> None:
    with standing_in(Late(package)):
        with standing_in(Late(package)):
            pass
        assert isinstance(sys.modules[package], Late)
    assert package not in sys.modules


def test_a_function_is_called_with_a_module_once_it_is_imported(package: str) -> None:
    seen: list[ModuleType] = []
    finder = OnceImported(package, seen.append)
    sys.meta_path.insert(0, finder)
    module = __import__(package)
    assert seen == [module]
    assert finder not in sys.meta_path
