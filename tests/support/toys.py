"""A user's project with one benchmark, which makes as many errors as the file ``errors`` says."""

from __future__ import annotations

import json
import subprocess
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.project import ALONE

BENCHMARK = '''
from pathlib import Path

from pytest_touchstone import Aggregation, Loglikelihood, benchmark, mean, mean_estimate


def trimmed(values, clusters):
    """The mean of all but the largest tenth."""
    return mean_estimate(sorted(values)[: len(values) * 9 // 10])


@benchmark(
    "toys",
    version=1,
    data="toys/test",
    asks=Loglikelihood,
    primary="error_rate",
    aggregate={
        "error_rate": mean("error", higher_is_better=False),
        "wait": Aggregation("trimmed mean", "seconds", function=trimmed, higher_is_better=False, unit="s", margin=0.1),
    },
)
def test_toys(example):
    """Wrong as often as the file says."""
    yield Loglikelihood(example["q"], " 1")
    wrong = example["n"] < int(Path("errors").read_text())
    return {"error": wrong, "acc": not wrong, "half": 0.5, "seconds": 2.0 + wrong}
'''


def make(folder: Path) -> Path:
    """Write the project, with 200 rows."""
    (folder / "data" / "toys").mkdir(parents=True)
    rows = (json.dumps({"n": n, "q": f"{n}+1="}) for n in range(200))
    (folder / "data" / "toys" / "test.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "test_toys.py").write_text(BENCHMARK)
    return folder


def score(
    pytester: pytest.Pytester, errors: int, run_id: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run the benchmark on a fake checkpoint that makes so many errors, at 100 columns."""
    (pytester.path / "errors").write_text(str(errors))
    command = ["--checkpoint", "fake:causal", "--eval-data", "data", *ALONE, "-q", "--eval-run-id", run_id]
    command += arguments
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        done = pytester.runpytest(*command)
    return subprocess.CompletedProcess(command, done.ret, done.stdout.str(), done.stderr.str())


def told(project: Path, *arguments: str) -> str:
    """What ``touchstone ARGUMENTS`` prints in the project at 100 columns, without a process of its own."""
    with chdir(project), redirect_stdout(StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        assert main([*arguments]) == 0
    return printed.getvalue()
