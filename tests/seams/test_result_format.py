"""A result format of another package: read by ``touchstone compare`` and ``import``, written at a run's end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.installed import install, run_python, touchstone
from tests.support.lines import missing

CODE = '''
from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults, published
from pytest_touchstone.compare.candidate import result_from_totals, source_of
from pytest_touchstone.compare.formats.base import ResultTable

class Plain:
    """Lines of ``benchmark value items``, the checkpoint in the first line."""

    name = "plain"
    patterns = ("*.scores",)

    def sniff(self, path):
        return path.suffix == ".scores"

    def read(self, path, sizes):
        source, data = source_of(path)
        name, *lines = data.decode().splitlines()
        entries = {}
        for line in lines:
            benchmark, value, n = line.split()
            metric = published("acc", float(value), n=int(n))
            saved = result_from_totals(
                benchmark, {"acc": metric}, primary="acc", source=source, name=name, about={}
            )
            entries[benchmark] = BenchmarkScores(saved=saved)
        return ResultTable((CheckpointResults(name=name, origin=path.name, entries=entries),))

    def write(self, summary, taken):
        lines = [f"{one.benchmark} {one.metrics[one.primary].value} {one.scored}" for one in summary.results]
        return {"all.scores": "\\n".join([summary.checkpoints[0]["name"], *lines])}
'''


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return install(tmp_path / "packages", "plain_scores", CODE, {"touchstone.result_formats": "Plain"})


def test_an_installed_format_is_compared_and_imported(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "old.scores").write_text("old\nquiz 0.50 1000\n")
    (tmp_path / "new.scores").write_text("new\nquiz 0.60 1000\n")
    found = touchstone(
        "compare", "old.scores", "new.scores", "--format", "json", cwd=tmp_path, packages=packages
    )
    [pair] = json.loads(found.stdout)["pairs"]
    assert (pair["improvements"], pair["benchmarks"][0]["points"]) == (["quiz"], pytest.approx(10))
    found = touchstone("baseline", "import", "new.scores", cwd=tmp_path, packages=packages)
    assert not missing(found.stdout, "1 checkpoint of new.scores", "results/saved/: quiz new")
    of_folder = touchstone("compare", ".", cwd=tmp_path, packages=packages)
    assert "quiz" in of_folder.stdout, of_folder.stderr


def test_without_the_package_the_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "old.scores").write_text("old\nquiz 0.50 1000\n")
    found = touchstone("compare", "old.scores", "old.scores", cwd=tmp_path)
    assert found.returncode == 4
    assert not missing(found.stderr, "old.scores", ".csv, .json or .md")


def test_a_run_writes_an_installed_format(tmp_path: Path, packages: Path) -> None:
    code = (
        "from pathlib import Path; from pytest_touchstone.reports.files import write_results;"
        "from tests.support.summaries import sample; write_results(sample(faults=False), Path('out'))"
    )
    found = run_python("-c", code, cwd=tmp_path, packages=packages)
    assert found.returncode == 0, found.stderr
    name, *lines = (tmp_path / "out" / "details" / "all.scores").read_text().splitlines()
    assert name == "checkpoint-100"
    assert [line.split()[0] for line in lines][:1] == ["winogrande"]
