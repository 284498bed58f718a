"""From what the user typed to checkpoints.

runs/a/checkpoint-655             a folder that save_pretrained or a Trainer wrote
model.gguf                        a GGUF file
'runs/*/checkpoint-*'             a glob, in the order of folders, then of steps
builtin:ko-mlm-tiny               the last step; builtin:ko-mlm-tiny/nouns/checkpoint-300 any saved one
builtin:smollm2-135m              once ``touchstone fetch smollm2-135m`` has brought it
builtin:mtp-tiny                  a model with four prediction heads
hub:ORG/NAME, ORG/NAME            on the Hugging Face Hub
fake:causal, fake:masked          no model: answers come from hashes, for trying out a benchmark
"""

from __future__ import annotations

import glob
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.checkpoints.builtin import KO_MLM, NAMES, SMOLLM2, builtin_path, step_of
from harness.checkpoints.folders import limited, recognise_folder
from harness.checkpoints.gguf_header import read_gguf
from harness.checkpoints.hub import fetch_from_hub, hub_id
from harness.checkpoints.info import CheckpointInfo, Kind
from harness.errors import CheckpointError

_FAKE_LENGTH: Final = 2048
_GGUF_LENGTH: Final = 2048


def recognise(source: str, *, seq_len: int | None) -> list[CheckpointInfo]:
    """The checkpoints that ``source`` names, at least one; nothing is loaded, and torch is not imported.

    ``seq_len`` is the value of ``--eval-seq-len``. Raises ``CheckpointError`` (one line) when a checkpoint is
    missing or broken.
    """
    if source.startswith("fake:"):
        return [_fake(source, seq_len)]
    if source.startswith("builtin:"):
        return [_builtin(source, seq_len)]
    path = Path(source).expanduser()
    if path.exists():
        return [_local(path, source, seq_len)]
    if glob.has_magic(source):
        return [_local(match, source, seq_len) for match in _expand(source)]
    if (name := hub_id(source)) is not None:
        info = _local(fetch_from_hub(name), source, seq_len)
        return [replace(info, name=name.split("/")[-1])]
    raise CheckpointError(f"{source}: no such file or folder; check the path")


def default_checkpoints(*, seq_len: int | None = None) -> list[CheckpointInfo]:
    """The builtin checkpoints that are there, for a run without ``--checkpoint``; may be empty."""
    found = []
    for name in (KO_MLM, SMOLLM2):
        try:
            builtin_path(name)
        except CheckpointError:
            continue
        found += recognise(f"builtin:{name}", seq_len=seq_len)
    return found


def _local(path: Path, source: str, seq_len: int | None) -> CheckpointInfo:
    if path.is_dir():
        return recognise_folder(path, source, seq_len)
    if path.suffix == ".gguf":
        return _gguf(path, source, seq_len)
    raise CheckpointError(
        f"{path}: neither a checkpoint folder nor a .gguf file; give the folder that holds config.json"
    )


def _gguf(path: Path, source: str, seq_len: int | None) -> CheckpointInfo:
    header = read_gguf(path)
    return CheckpointInfo(
        name=path.stem,
        source=source,
        path=path,
        kind="causal",
        format="gguf",
        model_type=header.architecture,
        architecture=f"{header.architecture} (gguf)",
        seq_len=limited(path, header.context_length or _GGUF_LENGTH, seq_len),
    )


def _builtin(source: str, seq_len: int | None) -> CheckpointInfo:
    name = source.removeprefix("builtin:")
    info = _local(builtin_path(name), source, seq_len)
    return replace(info, name=name) if name in NAMES else info


def _fake(source: str, seq_len: int | None) -> CheckpointInfo:
    kinds: dict[str, Kind] = {"fake:causal": "causal", "fake:masked": "masked"}
    if source not in kinds:
        raise CheckpointError(f"{source}: unknown; use fake:causal or fake:masked")
    return CheckpointInfo(
        name=source.replace(":", "-"),
        source=source,
        path=Path(source),
        kind=kinds[source],
        format="fake",
        model_type="fake",
        architecture="answers from hashes, no model",
        seq_len=limited(Path(source), _FAKE_LENGTH, seq_len),
    )


def _expand(pattern: str) -> list[Path]:
    """The folders and GGUF files that match, by their folder, then by the number at the end of their name."""
    # pathlib refuses absolute patterns, hence the module glob.
    matches = glob.glob(str(Path(pattern).expanduser()), recursive=True)  # noqa: PTH207
    found = [path for path in map(Path, matches) if path.is_dir() or path.suffix == ".gguf"]
    if not found:
        raise CheckpointError(
            f"{pattern}: matches no folder and no .gguf file; check the pattern (and quote it)"
        )
    return sorted(found, key=lambda path: (_natural(path.parent), step_of(path), path.name))


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts numbers in names by value."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]
