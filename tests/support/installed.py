"""Installs a small package, as pip would without network, for a Python that is started with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

PACKAGES = Path(__file__).parents[1] / "seams" / "packages"
"""The packages of somebody else's, each with what it says of itself and one module."""


def install(name: str, target: Path) -> Path:
    """Put the package's modules and its entry points into a folder for ``PYTHONPATH``."""
    source = PACKAGES / name
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = target / f"{name}-{project['version']}.dist-info"
    facts.mkdir(parents=True)
    for path in source.glob("*.py"):
        shutil.copy(path, target)
    said = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (facts / "METADATA").write_text(said, encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{one} = {value}" for one, value in entries.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def python(*arguments: str, packages: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python that has the packages."""
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )


def run_pytest(*arguments: str, packages: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with ``data/`` where the packages are installed."""
    fixed = ("-p", "no:cacheprovider", "--eval-data", "data")
    return python("-m", "pytest", *fixed, *arguments, packages=packages, cwd=cwd)


def touchstone(arguments: Sequence[str], *, packages: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command ``touchstone`` where the packages are installed."""
    return python(
        "-c",
        "import sys; from harness.cli import main; sys.exit(main())",
        *arguments,
        packages=packages,
        cwd=cwd,
    )
