"""Small third-party packages, installed as pip would without network, for a Python that is started with them."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.support.forking import python
from tests.support.places import ROOT, SOURCE
from tests.support.project import ALONE

PACKAGES = ROOT / "tests" / "seams" / "packages"
"""Packages with what each says of itself and one module."""


def install(folder: Path, name: str, code: str, entry_points: Mapping[str, str | Mapping[str, str]]) -> Path:
    """Put the module ``name`` and its metadata into ``folder``; ``entry_points`` are, by group, an object of it, or
    objects with their modules by name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    metadata = folder / f"{name}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = []
    for group, found in entry_points.items():
        entries = {name: f"{name}:{found}"} if isinstance(found, str) else found
        lines += [f"[{group}]", *(f"{one} = {value}" for one, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def install_package(folder: Path, name: str) -> Path:
    """Install one of ``PACKAGES``."""
    project = tomllib.loads((PACKAGES / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code = (PACKAGES / name / f"{name}.py").read_text(encoding="utf-8")
    return install(folder, name, code, project["entry-points"])


def run_python(*arguments: str, cwd: Path, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` in ``cwd`` with the installed packages of ``packages``, at 100 columns."""
    found = [str(packages)] if packages is not None else []
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*found, str(SOURCE), str(ROOT)]),
        "COLUMNS": "100",
    }
    return subprocess.run(
        [python(), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_pytest(*arguments: str, cwd: Path, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with ``data/``."""
    return run_python("-m", "pytest", *ALONE, "--eval-data", "data", *arguments, cwd=cwd, packages=packages)


def touchstone(*arguments: str, cwd: Path, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command ``touchstone``."""
    return run_python("-m", "pytest_touchstone.cli", *arguments, cwd=cwd, packages=packages)
