"""The builtin checkpoints: a small masked model and one with several heads in the repository, a causal one in the
user's cache."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.errors import CheckpointError
from harness.shipped import shipped

KO_MLM: Final = "ko-mlm-tiny"
KO_MLM_SERIES: Final = "nouns"
SMOLLM2: Final = "smollm2-135m"
MTP: Final = "mtp-tiny"
NAMES: Final = (KO_MLM, SMOLLM2, MTP)


def cache_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where a fetched checkpoint is kept: ``TOUCHSTONE_CACHE``, else ``XDG_CACHE_HOME/touchstone``, else
    ``~/.cache/touchstone``."""
    if own := environ.get("TOUCHSTONE_CACHE"):
        return Path(own) / name
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "touchstone" / name


def step_of(folder: Path) -> int:
    """The number at the end of the folder's or file's name, -1 without one."""
    number = re.search(r"(\d+)(?:\.pth?|\.gguf)?$", folder.name)
    return int(number[1]) if number else -1


def builtin_path(name: str) -> Path:
    """The folder or file of ``builtin:NAME``; a ``CheckpointError`` says how to get one that is not there."""
    if name == SMOLLM2:
        return _fetched(name)
    if name == MTP:
        return shipped("models", MTP, "checkpoint_best.pt")
    if name == KO_MLM:
        return _last(shipped("models", KO_MLM, KO_MLM_SERIES), name)
    first, _, rest = name.partition("/")
    if first == KO_MLM and rest and ".." not in rest.split("/"):
        path = shipped("models", KO_MLM, *rest.split("/"))
        if not path.is_dir():
            raise CheckpointError(f"builtin:{name}: not there; there are {_saved()}")
        return path if (path / "config.json").is_file() else _last(path, name)
    raise CheckpointError(f"builtin:{name}: unknown; there are builtin:{', builtin:'.join(NAMES)}")


def builtin_pattern(pattern: str) -> str:
    """The glob of ``builtin:PATTERN``; raises ``CheckpointError`` where it leaves the builtin series."""
    first, _, rest = pattern.partition("/")
    if first != KO_MLM or not rest or ".." in rest.split("/"):
        raise CheckpointError(f"builtin:{pattern}: unknown; there is a series, builtin:{KO_MLM}/*")
    return f"{glob.escape(str(shipped('models', KO_MLM)))}/{rest}"


def _fetched(name: str) -> Path:
    files = sorted(cache_folder(name).glob("*.gguf"))
    if not files:
        raise CheckpointError(f"builtin:{name}: not there yet; run: touchstone fetch {name}")
    return files[0]


def _last(series: Path, name: str) -> Path:
    """The checkpoint of the series with the highest step."""
    steps = [path for path in series.glob("checkpoint-*") if (path / "config.json").is_file()]
    if not steps:
        raise CheckpointError(
            f"builtin:{name}: no checkpoint in {series}; check that the installation is complete"
        )
    return max(steps, key=step_of)


def _saved() -> str:
    root = shipped("models", KO_MLM)
    found = [path.parent for path in root.glob("*/checkpoint-*/config.json")]
    found.sort(key=lambda path: (path.parent.name, step_of(path)))
    return ", ".join(f"builtin:{KO_MLM}/{path.parent.name}/{path.name}" for path in found) or "none saved"
