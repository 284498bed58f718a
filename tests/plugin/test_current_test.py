"""The variable that names the current test is there as ever, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _pytest import runner

from pytest_touchstone.plugin.current_test import NAME, kept_once
from tests.support.project import Project

ASKS = """
import os
import subprocess
import sys


def told():
    code = "import os; print(os.environ['PYTEST_CURRENT_TEST'])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert child == os.environ["PYTEST_CURRENT_TEST"] == os.getenv("PYTEST_CURRENT_TEST")
    return child


def test_one():
    assert told() == "test_asks.py::test_one (call)"


def test_two_whose_name_is_longer_{long}():
    assert told() == "test_asks.py::test_two_whose_name_is_longer_{long} (call)"


def test_three():
    assert told() == "test_asks.py::test_three (call)"
"""

MANY = """\
import os
from _pytest import runner
from pytest_touchstone.plugin.current_test import kept_once

class Item:
    nodeid = ""

def rss():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024

item = Item()
with kept_once():
    for number in range(40_000):
        if number == 2_000:
            before = rss()
        item.nodeid = f"test_trivial.py::test_trivial[trivial/{number}]"
        for when in ("setup", "call", "teardown", None):
            runner._update_current_test_var(item, when)
print((rss() - before) / 38_000)
"""


def test_tests_and_their_programs_find_the_name_of_the_current_test(project: Project) -> None:
    project.rows(2)
    (project.path / "test_asks.py").write_text(ASKS.format(long="x" * 2000))
    seen: list[tuple[str, Any]] = []

    class Seen:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            seen.append((report.when or "", os.environ.get(NAME)))

    project.run("-k", "test_one or test_two or test_three or sums", plugins=[Seen()]).assert_outcomes(
        passed=5
    )
    assert [name for when, name in seen if when == "call"] == [
        "test_asks.py::test_one (call)",
        f"test_asks.py::test_two_whose_name_is_longer_{'x' * 2000} (call)",
        "test_asks.py::test_three (call)",
        "test_sums.py::test_sums[sums/0] (call)",
        "test_sums.py::test_sums[sums/1] (call)",
    ]
    assert [name for when, name in seen if when == "teardown"] == [None] * 5


def test_pytests_own_way_is_back_afterwards() -> None:
    before = runner._update_current_test_var
    with kept_once():
        assert runner._update_current_test_var is not before
    assert runner._update_current_test_var is before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process's memory")
def test_names_of_former_tests_take_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50, f"{done.stdout} bytes for each item"
