"""The settings for loading and running checkpoints, and the memory that they may use.

These are plain values, which can be made without torch. Sizes are such as ``2GiB`` and ``50%``. A container sees the
memory of its host; the limits of its control groups (versions 1 and 2) are in files of their own.
"""

from __future__ import annotations

import mmap
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pytest_touchstone.core.reasoning import AUTO

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
Chat: TypeAlias = Literal["auto", "on", "off"]
Speculative: TypeAlias = Literal["auto", "off"]
Texts: TypeAlias = Literal["auto", "vllm", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of a model engine.

    ``dtype`` "auto": float32 on a CPU, the checkpoint's own type on an accelerator. ``device``: auto, cpu, cuda,
    cuda:INDEX or mps. ``device_map`` "auto" spreads a model over all GPUs. ``batch``: sequences computed at once, None
    for as many as a budget of tokens allows. ``threads``: CPU threads, None for torch's default. ``memory``: what the
    engines may take beside the weights, as ``bytes_of`` reads it, in all of so many
    ``processes``; None for half of what is free.

    ``chat``: whether texts are generated through the checkpoint's chat template; "auto" uses it where there is one.
    ``system`` is the system prompt of every chat. ``think_end`` is the delimiter that ends a reasoning
    (``core.reasoning``), and by ``thinking`` the chat template is told whether to begin one; None leaves that to it.
    ``max_new_tokens``: a limit in place of the benchmark's own. ``speculative``: whether extra heads propose
    tokens; it changes no answer, only the time. ``texts``: who writes texts (``engines.registry``).

    Of served models: ``concurrency`` requests may be under way at once in this process. ``request_timeout``,
    ``item_timeout`` and ``run_timeout`` are seconds. ``price`` is that of a million prompt tokens and of a million new
    ones.

    ``engine``: where replicas of the model answer (``replicas.ray_cluster``), None for this process.
    """

    dtype: Dtype = "auto"
    device: str = "auto"
    device_map: Literal["auto"] | None = None
    batch: int | None = None
    threads: int | None = None
    memory: str | None = None
    processes: int = 1
    chat: Chat = "auto"
    system: str | None = None
    think_end: str = AUTO
    thinking: Literal["on", "off"] | None = None
    max_new_tokens: int | None = None
    speculative: Speculative = "auto"
    texts: Texts = "auto"
    concurrency: int = 64
    request_timeout: float = 600.0
    item_timeout: float = 1800.0
    run_timeout: float | None = None
    price: tuple[float, float] | None = None
    engine: str | None = None


def finds_vllm() -> bool:
    """Return whether vLLM is on PATH, and aiohttp is installed here."""
    return shutil.which("vllm") is not None and find_spec("aiohttp") is not None


# Memory

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+) ?(?:(%)|([KMGT]?)i?B?)", re.IGNORECASE)

_FILES: Final = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By controller ("" is version 2): the files of a group's limit and use, and the row of ``memory.stat`` that counts
pages of files that can be dropped."""


def memory_size(text: str) -> str:
    """Parse a size as it is written, without spaces. Raises ``ValueError`` with the expected form."""
    bytes_of(text, 2**60)
    return text.replace(" ", "")


def bytes_of(text: str, free: int | None) -> int | None:
    """Return the bytes that a size means; None for a share if the free memory is unknown.

    Raises ``ValueError`` with the expected form. Units are powers of 1024, GB like GiB.
    """
    size = _SIZE.fullmatch(text.strip())
    amount = float(size[1]) if size else 0.0
    if not size or not amount or (size[2] and amount > 100):
        raise ValueError("a size (2GiB, 512MiB) or a share of the free memory (50%)")
    if size[2]:
        return None if free is None else int(free * amount / 100)
    return int(amount * _UNITS[size[3].upper()])


def shown_size(size: int) -> str:
    """Format a size for people: ``--eval-set memory`` accepts it, and it is never less than the size."""
    if size >= 10 * 2**30:
        return f"{-(-size // 2**30)}GiB"
    return f"{-(-size // 2**20)}MiB"


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still use, of the machine's and of its control groups'.

    Files in the system's cache do not count as used. None if unknown.
    """
    sizes = [
        int(line.split()[1]) * 1024
        for line in _read(root / "proc/meminfo").splitlines()
        if line.startswith("MemAvailable:")
    ]
    sizes += _left_in_groups(root)
    return max(0, min(sizes)) if sizes else None


def resident_bytes() -> int:
    """Return the bytes of memory that this process has, on Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes of each control group of the process, and of the groups around it."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        for controller in controllers.split(","):
            if controller not in _FILES:
                continue
            limit_file, used_file, row = _FILES[controller]
            mount = root / "sys/fs/cgroup" / controller
            inner = mount / path.strip("/")
            for folder in (inner, *inner.parents):
                limit, used = _read(folder / limit_file).strip(), _read(folder / used_file).strip()
                if limit.isdecimal() and used.isdecimal():
                    rows = map(str.split, _read(folder / "memory.stat").splitlines())
                    stat = dict(words for words in rows if len(words) == 2)
                    yield int(limit) - int(used) + int(stat.get(row, 0))
                if folder == mount:
                    break


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
