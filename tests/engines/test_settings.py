"""Sizes of memory as people write them, and what is free here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.settings import bytes_of, free_bytes, memory_size, shown_size

MEMINFO = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 8000 kB\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("512MiB", 2**29), ("1.5G", 3 * 2**29), ("4096", 4096), ("64 mb", 2**26), ("50%", 500)],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert bytes_of(text, 1000) == size
    assert bytes_of(memory_size(text), 1000) == size


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-1GiB", "2GiB%", "much", "", "1e9"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="a size"):
        memory_size(text)


def test_a_share_of_what_nobody_knows_is_not_known() -> None:
    assert bytes_of("50%", None) is None
    assert bytes_of("1MiB", None) == 2**20


@given(st.integers(1, 2**50))
def test_a_size_that_is_shown_is_enough(size: int) -> None:
    assert size <= (bytes_of(shown_size(size), None) or 0) <= size * 1.1 + 2**20


def test_what_the_machine_has_free_is_free(tmp_path: Path) -> None:
    assert free_bytes(machine(tmp_path, {"proc/meminfo": MEMINFO})) == 8000 * 1024
    assert free_bytes(tmp_path / "nowhere") is None


def test_the_least_limit_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/outer"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/outer/inner\n",
        f"{group}/memory.max": "5000000\n",
        f"{group}/memory.current": "2000000\n",
        f"{group}/memory.stat": "anon 5\ninactive_file 500000\n",
        f"{group}/inner/memory.max": "max\n",
        f"{group}/inner/memory.current": "7\n",
    }
    assert free_bytes(machine(tmp_path, files)) == 3_500_000


def test_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000000\n",  # as a container sees its own
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000000\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 1500000\n",
    }
    assert free_bytes(machine(tmp_path, files)) == 500_000
