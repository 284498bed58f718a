"""The memory that this machine has left for a process, and sizes such as ``2GiB`` and ``50%``.

A container sees the memory of its host; the limits of its control groups (versions 1 and 2) are in files of their own.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+) ?(?:(%)|([KMGT]?)i?B?)", re.IGNORECASE)

_FILES: Final = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By controller ("" is version 2): the files of a group's limit and use, and the row of ``memory.stat`` that counts
pages of files that can be dropped."""


def memory_size(text: str) -> str:
    """Return a size as it was written, without spaces; raise ``ValueError`` with what was expected."""
    bytes_of(text, 2**60)
    return text.replace(" ", "")


def bytes_of(text: str, free: int | None) -> int | None:
    """Return the bytes that a size means; None for a share where nobody knows how much is free.

    Raises ``ValueError`` with what was expected. Units are powers of 1024, GB like GiB.
    """
    found = _SIZE.fullmatch(text.strip())
    amount = float(found[1]) if found else 0.0
    if not found or not amount or (found[2] and amount > 100):
        raise ValueError("a size (2GiB, 512MiB) or a share of the free memory (50%)")
    if found[2]:
        return None if free is None else int(free * amount / 100)
    return int(amount * _UNITS[found[3].upper()])


def shown_size(size: int) -> str:
    """Return a size for people: ``--eval-set memory`` takes it, and it is never less than the size."""
    if size >= 10 * 2**30:
        return f"{-(-size // 2**30)}GiB"
    return f"{-(-size // 2**20)}MiB"


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still take, of the machine's and of its control groups'.

    Files that the system has cached do not count as taken. None where nobody knows.
    """
    found = [one for one in (_of_machine(root), *_of_groups(root)) if one is not None]
    return max(0, min(found)) if found else None


def resident_bytes() -> int:
    """Return the bytes of memory that this process has, on Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def _of_machine(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_groups(root: Path) -> Iterator[int]:
    """Yield what is left in each group of the process, and in those around it."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller not in _FILES:
                continue
            mount = root / "sys/fs/cgroup" / controller
            inner = mount / path.strip("/")
            for folder in (inner, *inner.parents):
                yield from _left(folder, *_FILES[controller])
                if folder == mount:
                    break


def _left(folder: Path, limit_file: str, used_file: str, row: str) -> Iterator[int]:
    limit, used = _read(folder / limit_file).strip(), _read(folder / used_file).strip()
    if not limit.isdecimal() or not used.isdecimal():
        return
    stat = dict(line.split() for line in _read(folder / "memory.stat").splitlines() if len(line.split()) == 2)
    yield int(limit) - int(used) + int(stat.get(row, 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
