"""Every form in which a task's tests are published lets a right program pass, and one that does nothing never."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_touchstone.core.requests import CallTests, RunProgram
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.code_runs import spec_of
from tests.support.lines import naming

RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n"
PROMPT = 'def add(a, b):\n    """The sum."""\n'
METHOD = "class Solution:\n    def add(self, a, b):\n        return a + b\n"

FORMS: dict[str, dict[str, Any]] = {
    "check": {"test": CHECK, "entry_point": "add"},
    "check with METADATA": {"test": f"METADATA = {{'author': 'x'}}\n\n\n{CHECK}", "entry_point": "add"},
    "check without an entry point": {"test": CHECK},
    "check with an empty entry point": {"test": CHECK, "entry_point": None},
    "check that is called": {"test": f"{CHECK}\ncheck(add)\n", "entry_point": "add"},
    "check as a list": {"test": [CHECK, "check(add)"], "entry_point": "add"},
    "check in several lines": {"test": CHECK.splitlines(), "entry_point": "add"},
    "check without an argument": {"test": "def check():\n    assert add(1, 2) == 3\n"},
    "check that is asynchronous": {
        "test": "async def check(candidate):\n    assert candidate(1, 2) == 3\n",
        "entry_point": "add",
    },
    "assertions": {"test": "assert add(1, 2) == 3\nassert add(2, 2) == 4\n", "entry_point": "add"},
    "assertions as a list": {"test": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]},
    "assertions as the text of a list": {"test": '["assert add(1, 2) == 3"]', "entry_point": "add"},
    "assertions as Python's text of a list": {"test": "['assert add(1, 2) == 3']"},
    "test_list": {"test_list": ["assert add(1, 2) == 3"], "entry_point": "add"},
    "setup code": {
        "test": ["assert add(x, 2) == 3"],
        "test_setup_code": "x = 1",
        "test_imports": ["import math"],
    },
    "test functions": {
        "test": "def test_a():\n    assert add(1, 2) == 3\n\n\ndef test_b():\n    assert add(0, 0) == 0\n"
    },
    "a test function of the candidate": {
        "test": "def test_a(candidate):\n    assert candidate(1, 2) == 3\n",
        "entry_point": "add",
    },
    "a test class": {
        "test": "class TestAdd:\n    def setup_method(self):\n        self.x = 1\n\n"
        "    def test_a(self):\n        assert add(self.x, 2) == 3\n"
    },
    "unittest": {
        "test": "import unittest\n\n\nclass Adds(unittest.TestCase):\n    def setUp(self):\n        self.x = 1\n\n"
        "    def test_a(self):\n        self.assertEqual(add(self.x, 2), 3)\n\n    def test_b(self):\n"
        "        with self.subTest('b'):\n            self.assertNotEqual(add(1, 2), -1)\n"
        "        self.assertEqual(add(0, 2), 2)\n\n\n"
        "if __name__ == '__main__':\n    unittest.main()\n"
    },
    "unittest that runs itself": {
        "test": "import unittest\n\n\nclass Adds(unittest.TestCase):\n    def test_a(self):\n"
        "        self.assertEqual(add(1, 2), 3)\n\n\nunittest.main()\n"
    },
    "unittest with a runner": {
        "test": "import unittest\n\n\nclass Adds(unittest.TestCase):\n    def test_a(self):\n"
        "        self.assertEqual(add(1, 2), 3)\n\n\nsuite = unittest.TestLoader().loadTestsFromTestCase(Adds)\n"
        "unittest.TextTestRunner().run(suite)\n"
    },
    "a script": {"test": 'if __name__ == "__main__":\n    assert add(1, 2) == 3\n', "entry_point": "add"},
    "a script that calls": {
        "test": 'def run():\n    assert add(1, 2) == 3\n\n\nif __name__ == "__main__":\n    run()\n'
    },
    "assertions on the candidate": {"test": "assert candidate(1, 2) == 3\n", "entry_point": "add"},
    "assertions on a candidate that nothing names": {"test": ["assert candidate(1, 2) == 3"]},
    "metadata as text": {"test": CHECK, "entry_point": "add", "as_text": True},
}


def request(benchmark: str, row: dict[str, Any], program: str) -> RunProgram:
    """The program as the benchmark's own grader has it run."""
    spec = spec_of(benchmark)
    assert spec.row_rules.prepare is not None
    assert spec.grader is not None
    return spec.grader.request(spec.row_rules.prepare(row), program, benchmark)


def outcome(sandbox: Sandbox, benchmark: str, row: dict[str, Any], program: str) -> str:
    return sandbox.run(request(benchmark, row, program)).outcome


def training_row(form: str, output: str = RIGHT) -> dict[str, Any]:
    metadata: Any = dict(FORMS[form])
    if metadata.pop("as_text", False):
        metadata = json.dumps(metadata)
    row = {"instruction": PROMPT, "input": "", "output": output, "task_id": "t/1", "metadata": metadata}
    return json.loads(json.dumps(row))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("benchmark", "form"),
    [
        (benchmark, form)
        for benchmark in ("humaneval", "mbpp", "codecontests", "apps_stdin")
        for form in FORMS
        if benchmark == "mbpp" or "test_setup_code" not in FORMS[form]  # setup code is MBPP's
    ],
)
def test_a_right_program_passes_and_an_idle_one_does_not(sandbox: Sandbox, benchmark: str, form: str) -> None:
    output = "    return a + b\n" if benchmark == "humaneval" else RIGHT
    row = training_row(form, output)
    assert outcome(sandbox, benchmark, row, RIGHT) == "passed"
    for program in ("x = 1\n", "", WRONG, "def add(*_, **__):\n    raise ValueError\n"):
        assert outcome(sandbox, benchmark, row, program) in ("wrong", "error"), program


@pytest.mark.parametrize("benchmark", ["mbpp", "codecontests"])
def test_a_method_may_be_the_entry_point(sandbox: Sandbox, benchmark: str) -> None:
    row = {
        "instruction": "Add.",
        "output": METHOD,
        "task_id": "t/1",
        "metadata": {"test": CHECK, "entry_point": "Solution().add"},
    }
    assert outcome(sandbox, benchmark, row, METHOD) == "passed"
    assert outcome(sandbox, benchmark, row, METHOD.replace("+", "-")) == "wrong"
    assert outcome(sandbox, benchmark, row, "x = 1") == "error"


def test_a_function_that_has_a_name_of_pythons_own_is_the_programs(sandbox: Sandbox) -> None:
    row = {
        "instruction": "Add.",
        "output": "",
        "task_id": "t/1",
        "metadata": {"test": "assert sum(1, 2) == 3", "entry_point": "sum"},
    }
    tests = request("mbpp", row, "").tests
    assert isinstance(tests, CallTests)
    assert tests.names == ("sum",)
    assert outcome(sandbox, "mbpp", row, "def sum(a, b):\n    return a + b\n") == "passed"


@pytest.mark.parametrize("benchmark", ["humaneval", "mbpp", "codecontests", "apps_stdin"])
@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("", "test"),
        ("# nothing\n", "ask nothing of the program"),
        ("METADATA = {'author': 'x'}\n", "ask nothing of the program"),
        ("def check(candidate, reference):\n    pass\n", "nothing gives it 'reference'"),
        ("def test_a(tmp_path):\n    assert add(1, 2) == 3\n", "nothing gives it 'tmp_path'"),
        (
            "class TestAdd:\n    def test_a(self, case):\n        assert add(*case)\n",
            "nothing gives it 'case'",
        ),
        ("def check(candidate)\n    pass\n", "its tests are no Python"),
    ],
)
def test_tests_that_nothing_would_call_are_refused(benchmark: str, test: str, said: str) -> None:
    row = {
        "instruction": "def add(a, b):\n",
        "output": "",
        "task_id": "t/1",
        "metadata": {"test": test, "entry_point": "add"},
    }
    prepare = spec_of(benchmark).row_rules.prepare
    assert prepare is not None
    with pytest.raises((ValueError, KeyError), match=said):
        prepare(row)


@pytest.mark.parametrize("entry_point", ["1", "a b", "add(1) + 2"])
def test_an_entry_point_that_names_nothing_is_refused(entry_point: str) -> None:
    row = {
        "instruction": "Add.",
        "output": "",
        "task_id": "t/1",
        "metadata": {"test": CHECK, "entry_point": entry_point},
    }
    prepare = spec_of("mbpp").row_rules.prepare
    assert prepare is not None
    with pytest.raises(ValueError, match="entry_point is"):
        prepare(row)


def test_check_without_anything_that_names_a_function_is_refused() -> None:
    prepare = spec_of("mbpp").row_rules.prepare
    assert prepare is not None
    with pytest.raises(ValueError, match=naming("check(candidate)", "entry_point")):
        prepare({"instruction": "Add.", "output": "", "task_id": "t/1", "metadata": {"test": CHECK}})
