"""The memory of a run: how much one item more costs the process that collects, answers and reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf.overhead import BENCHMARK
from tests.support.places import SOURCE

RUN = """\
import sys
import pytest
code = pytest.main(sys.argv[1:])
assert code == 0, code
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print("peak", int(line.split()[1]) * 1024)
"""
"""Not by ``getrusage``, whose peak begins with that of the process that has started this one."""

MOST = 8000
"""The bytes that an item may cost, of which pytest's own for a trivial test are 5,600."""


def peak(folder: Path, items: int) -> int:
    """Return the most memory that a run of so many items took."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_trivial.py").write_text(BENCHMARK)
    (folder / "data" / "trivial").mkdir(parents=True)
    rows = (json.dumps({"text": f" word {number}"}) for number in range(items))
    (folder / "data" / "trivial" / "test.jsonl").write_text("".join(f"{row}\n" for row in rows))
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--checkpoint",
        "fake:causal",
        "--eval-data",
        "data",
        "test_trivial.py",
    ]
    command = [sys.executable, "-c", RUN, *words]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rpartition("peak ")[2])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process's peak")
def test_an_item_more_costs_a_few_kilobytes_at_most(tmp_path: Path) -> None:
    few, many = 4_000, 16_000
    each = (peak(tmp_path / "many", many) - peak(tmp_path / "few", few)) / (many - few)
    assert each < MOST, f"{each:.0f} bytes for each item"
