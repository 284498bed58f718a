"""A fault in one item is an error of that item: all others are scored, and the exit code is not 0.

``tests/drill/test_poison.py`` has the kinds of faults.
"""

from __future__ import annotations

import pytest

from tests.support.project import Project


def test_numpy_scores_travel(project: Project) -> None:
    project.write("import numpy; return {'acc': numpy.float32(0.5), 'margin': numpy.int64(2)}")
    assert project.run("-n", "1").ret == 0
    assert project.records["sums/0"].scores == {"acc": 0.5, "margin": 2.0}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_benchmark_that_never_yields_is_an_error_of_its_items(project: Project, workers: str) -> None:
    project.write()
    (project.path / "test_never.py").write_text(
        "from pytest_touchstone import Loglikelihood, benchmark\n"
        "@benchmark(name='never', version=1, data='sums/test', asks=Loglikelihood, primary='acc')\n"
        "def test_never(example):\n    return {'acc': 1.0}\n"
    )
    result = project.run("-n", workers, "--eval-limit", "3")
    assert result.ret == 9
    result.assert_outcomes(passed=3, failed=3)
    assert "never yields" in str(project.records["never/0"].message)


def test_a_property_that_cannot_travel_fails_its_own_test_only(project: Project) -> None:
    (project.path / "test_plain.py").write_text(
        "def test_one(record_property):\n    record_property('o', object())\ndef test_two():\n    pass\n"
    )
    result = project.run("-n", "1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*cannot travel between processes*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert len(project.records) == 20


def test_an_interrupt_keeps_what_was_finished(project: Project) -> None:
    project.write("if example['n'] == 11: raise KeyboardInterrupt")
    result = project.run("--eval-set", "batch_items=4", apart=True)
    assert result.ret == 2
    assert sum(record.status == "scored" for record in project.records.values()) >= 8
    assert len(project.records) == 20


def test_a_disk_that_is_full_at_the_start_is_one_line(project: Project) -> None:
    (project.path / "conftest.py").write_text(
        "import resource, sys\n"
        "sys.dont_write_bytecode = True  # else Python leaves cut files for later tests\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
    )
    done = project.run(apart=True)
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *results/*File too large;*space*"])
    assert "INTERNALERROR" not in str(done.stdout) + str(done.stderr)
