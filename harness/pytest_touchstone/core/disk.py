"""Write files through one module, so that a test can replace the disk.

Such a disk stops anywhere, refuses, or forgets what was not synced.

What is written lasts once the file is synced, and, where it is new or renamed, its folder too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
"""The errors of file systems that do not sync folders, and of folders that may be written to but not read."""

LOCK_SECONDS: Final = 10.0
"""How long a file that somebody else holds is waited for; it is held for as long as it takes to read and write it."""


def open_file(path: Path, *, append: bool = False, new: bool = False) -> int:
    """Open a file for writing, creating or emptying it unless ``append`` is given; return its descriptor.

    Raises ``FileExistsError`` for a file that is there and should be ``new``: of all who open it so, on whatever
    machine, one gets it, also on file systems without locks.
    """
    how = os.O_APPEND if append else os.O_EXCL if new else os.O_TRUNC
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o644)


def write(descriptor: int, data: bytes | memoryview) -> int:
    """Write, and return how many bytes were taken, which may be fewer."""
    return os.write(descriptor, data)


def truncate(descriptor: int, size: int) -> None:
    """Cut a file."""
    os.ftruncate(descriptor, size)


def sync(descriptor: int) -> None:
    """Return when the content of a file is on the disk."""
    os.fsync(descriptor)


def close(descriptor: int) -> None:
    """Close a file."""
    os.close(descriptor)


def rename(old: Path, new: Path) -> None:
    """Rename a file over another, which may be missing."""
    old.replace(new)


def unlink(path: Path) -> None:
    """Remove a file; do nothing where it is missing."""
    path.unlink(missing_ok=True)


def mkdir(path: Path) -> None:
    """Make a folder, in one that is there; do nothing where it is there itself."""
    path.mkdir(exist_ok=True)


def rmdir(path: Path) -> None:
    """Remove a folder; raise ``OSError`` where it is missing or not empty."""
    path.rmdir()


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk, where the file system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


# Made of those above


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of it."""
    left = memoryview(data)
    while left:
        left = left[write(descriptor, left) :]


def open_to_append(path: Path, *, lasting: bool = True) -> int:
    """Open a file to append to it; return its descriptor.

    With ``lasting``, the directory entry of a new file is synced.
    """
    new = lasting and not path.exists()
    descriptor = open_file(path, append=True)
    if new:
        sync_folder(path.parent)
    return descriptor


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; their names are then on the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        mkdir(folder)
        sync_folder(folder.parent)


def write_new(path: Path, data: bytes) -> bool:
    """Create a file that need not survive a crash; return False if it exists."""
    try:
        descriptor = open_file(path, new=True)
    except FileExistsError:
        return False
    try:
        try:
            write_all(descriptor, data)
        finally:
            close(descriptor)
    except OSError:
        unlink(path)
        raise
    return True


def append_text(path: Path, text: str) -> None:
    """Append a text to a file; it need not last."""
    descriptor = open_to_append(path, lasting=False)
    try:
        write_all(descriptor, text.encode("utf-8", "backslashreplace"))
    finally:
        close(descriptor)


def share_lock(folder: Path) -> int:
    """Take a shared lock on a folder, and return its descriptor.

    Waits while another process holds it exclusively. File systems without locks are passed over.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def lock_alone(descriptor: int) -> bool:
    """Release a shared lock on a folder; return whether it is now held exclusively."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file exclusively by a lock file beside it: file systems of clusters have no locks.

    Raises ``OSError`` where the file beside it stays, as it does when its owner is killed.
    """
    make_folder(path.parent)
    lock, end = path.with_name(f".{path.name}.lock"), time.monotonic() + LOCK_SECONDS
    while not write_new(lock, b""):
        if time.monotonic() > end:
            reason = f"another process is writing it; if none is, remove {lock.name} beside it"
            raise OSError(errno.ETIMEDOUT, reason, str(path))
        time.sleep(0.02)
    try:
        yield
    finally:
        unlink(lock)
