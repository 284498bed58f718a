"""The check that the files of a checkpoint folder are really in it.

A link out of the folder would let a checkpoint name any file of the machine as its own. The Hub's cache is the one
place where links may lead out: from ``snapshots/REVISION`` into ``blobs`` beside ``snapshots``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_touchstone.core.errors import CheckpointError


def check_inside(folder: Path) -> None:
    """Raises ``CheckpointError`` for a file of the folder that is a link out of it, or to nothing."""
    allowed = [real := folder.resolve()]
    if real.parent.name == "snapshots":
        allowed.append(real.parent.parent / "blobs")
    for path in sorted(folder.iterdir()):
        if not path.is_symlink() or path.is_dir():
            continue
        target = path.resolve()
        if not any(target.is_relative_to(root) for root in allowed):
            raise CheckpointError(
                f"{path}: a link out of the checkpoint's folder (to {target}); copy the file into the folder"
            )
        if not target.exists():
            raise CheckpointError(f"{path}: a link to nothing; copy the file into the folder")


def shard_path(index: Path, shard: str) -> Path:
    """The file of a shard that an index names; one elsewhere, or not there, is a ``CheckpointError``."""
    if Path(shard).name != shard or shard in ("", ".", ".."):
        raise CheckpointError(
            f"{index}: names the shard {shard!r}, which is not in its folder; save the checkpoint again"
        )
    path = index.parent / shard
    if not path.is_file():
        raise CheckpointError(f"{path}: missing, though {index.name} names it; copy the checkpoint again")
    return path


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Raise ``CheckpointError`` where the system does not let us read the file within the block."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the file's permissions"
        ) from error
