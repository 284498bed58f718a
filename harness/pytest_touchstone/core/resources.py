"""The paths of the files that ship with the program: datasets, small models, benchmarks."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]
_CHECKOUT = _HERE.parents[1]


def shipped(*parts: str) -> Path:
    """The path of a shipped file or folder, whether or not it is there.

    An installed wheel carries the files in the package (``pytest_touchstone/_shipped``), a checkout in ``fixtures``.
    """
    inside = _HERE / "_shipped"
    root = inside if inside.is_dir() else _CHECKOUT / "fixtures"
    return root.joinpath(*parts)


def shipped_evals() -> Path:
    """The folder of the shipped benchmarks: ``pytest_touchstone/evals`` in a wheel, ``evals`` in a checkout."""
    inside = _HERE / "evals"
    return inside if inside.is_dir() else _CHECKOUT / "evals"
