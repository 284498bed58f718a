"""A small package of somebody else's, installed in a folder that a subprocess finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, name: str, code: str, entry_points: Mapping[str, str]) -> Path:
    """Put the module ``name`` and its metadata into ``folder``; ``entry_points`` are objects of it, by group."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    metadata = folder / f"{name}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = (f"[{group}]\n{name} = {name}:{found}\n" for group, found in entry_points.items())
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    return folder


def run_python(*arguments: str, cwd: Path, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` in ``cwd`` with the installed packages of ``packages``, at 100 columns."""
    found = [str(packages)] if packages is not None else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*found, str(ROOT)]), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def touchstone(*arguments: str, cwd: Path, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command ``touchstone``."""
    return run_python("-m", "harness.cli", *arguments, cwd=cwd, packages=packages)
