"""The paths of the files that ship with the program: datasets, small models, pytest fixtures."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from harness.core.files import load_module

_HERE = Path(__file__).resolve().parents[1]


def shipped(*parts: str) -> Path:
    """The path of a shipped file or folder, whether or not it is there.

    An installed wheel carries the files in the package (``harness/_shipped``), a checkout in ``fixtures``
    beside it.
    """
    inside = _HERE / "_shipped"
    root = inside if inside.is_dir() else _HERE.parent / "fixtures"
    return root.joinpath(*parts)


def shipped_evals() -> Path:
    """The folder of the shipped benchmarks: ``harness/evals`` in a wheel, ``evals`` in a checkout."""
    inside = _HERE / "evals"
    return inside if inside.is_dir() else _HERE.parent / "evals"


def load_shipped_module(name: str) -> ModuleType:
    """The shipped Python file ``NAME.py`` as a module.

    Loaded by its path and not by import: a user's project may well have a package ``fixtures`` too.
    """
    place = shipped(f"{name}.py")
    if not place.is_file():
        raise ImportError(f"{place} is missing; install pytest-touchstone again")
    return load_module(place, f"harness_shipped_{name}")
