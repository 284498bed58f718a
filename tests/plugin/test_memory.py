"""The memory of a run: how much one item more costs the process that collects, answers and reports."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perf.overhead import BENCHMARK
from pytest_touchstone.plugin.run_results import RunResults
from pytest_touchstone.results import journal as journal_module
from pytest_touchstone.results import records
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from tests.support.places import SOURCE
from tests.support.summaries import DECLARATIONS, collect, score

RUN = """\
import sys
import pytest
code = pytest.main(sys.argv[1:])
assert code == 0, code
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print("peak", int(line.split()[1]) * 1024)
"""
"""Not by ``getrusage``, whose peak begins with that of the process that has started this one."""

MOST = 4000
"""The bytes that an item may cost."""


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


def alive() -> int:
    """Return the number of records that exist now."""
    return sum(type(one) is Record for one in gc.get_objects())


def test_results_are_summed_up_without_a_record_object_for_each_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = collect(["winogrande"], ["c"], 300)
    directory = RunDirectory(tmp_path / "results" / "run")
    directory.make()
    directory.write_collected(items, {"winogrande": DECLARATIONS["winogrande"]}, [])
    directory.write_manifest({"checkpoints": [{"name": "c", "fingerprint": "f" * 64}]})
    with Journal(directory.path, "main") as journal:
        for one in score(items):
            journal.append(one)
    counted, read = [0], records.from_json

    def counting(data: dict[str, Any]) -> Record:
        found = read(data)
        if len(counted) % 25 == 0:
            counted.append(alive() - before)
        else:
            counted.append(0)
        return found

    monkeypatch.setattr(journal_module, "from_json", counting)
    before = alive()
    results = RunResults(directory)
    summary, kept = results.whole(lambda _: "lost", 1.0)
    counted.append(alive() - before)
    [(saved, scores)] = results.save(summary, kept)
    counted.append(alive() - before)
    assert summary.results[-1].scored == saved.scored == len(scores.examples) == 300
    assert len(counted) > 300
    assert max(counted) <= 5
