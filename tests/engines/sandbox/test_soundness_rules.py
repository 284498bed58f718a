"""The check of tests, with a stand-in for the sandbox: what is tried, what becomes of answers, what is kept."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import (
    CallTests,
    InputOutputTests,
    ProgramOutcome,
    RunProgram,
    RunProgramAnswer,
)
from pytest_touchstone.engines.sandbox import soundness
from pytest_touchstone.engines.sandbox.cache import judging_code
from pytest_touchstone.engines.sandbox.soundness import (
    ECHOES,
    EMPTY,
    PRINTS_NONE,
    RAISES,
    RETURNS_FIRST,
    RETURNS_NONE,
    SandboxRunner,
    SelfCheckingSandbox,
    wrong_programs,
)
from tests.support.lines import naming


class Stand(SandboxRunner):
    """Passes the programs that have one of the words in them."""

    def __init__(self, *words: str, otherwise: ProgramOutcome = "wrong") -> None:
        self.seen: list[str] = []
        self._words, self._otherwise = words, otherwise

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        self.seen.append(request.program)
        found: Future[RunProgramAnswer] = Future()
        passed = any(word in request.program if word else not request.program for word in self._words)
        found.set_result(RunProgramAnswer("passed" if passed else self._otherwise))
        return found

    def close(self) -> None:
        """Nothing to end."""


def asked(program: str = "right", tests: str = "assert add(1, 2) == 3\n", **more: Any) -> RunProgram:
    return RunProgram(program, CallTests(tests), **{"task": "t/1", **more})


def answer(folder: Path, stand: Stand, request: RunProgram | None = None) -> RunProgramAnswer:
    with SelfCheckingSandbox(stand, "bwrap", folder) as checked:
        return checked.run(request or asked())


def test_four_wrong_programs_define_what_the_tests_ask_for() -> None:
    request = RunProgram(
        "",
        CallTests("import math\nassert f(Pair(1), sum(2)) == math.pi\n", names=("sum",)),
        task="t",
        reference="class Pair:\n    pass\n\n\ndef f():\n    pass\n",
    )
    found = wrong_programs(request)
    assert [one.name for one in found] == [EMPTY, RAISES, RETURNS_NONE, RETURNS_FIRST]
    assert found[0].text == ""
    for one in found[1:]:
        assert all(word in one.text for word in ("def f(", "class Pair:", "def sum("))
        assert "math" not in one.text
        compile(one.text, one.name, "exec")


def test_what_the_task_defines_itself_is_not_asked_of_the_program() -> None:
    tests = CallTests("assert poly(zero([1])) == 0\n", trusted="def poly(x):\n    pass\n", names=("zero",))
    assert "def poly" not in wrong_programs(RunProgram("", tests, task="t"))[2].text


def test_programs_that_print_have_wrong_programs_of_their_own() -> None:
    found = wrong_programs(RunProgram("", InputOutputTests((("1", "1"),)), task="t"))
    assert [one.name for one in found] == [EMPTY, RAISES, PRINTS_NONE, ECHOES]


def test_tests_that_accept_no_wrong_program_change_nothing(tmp_path: Path) -> None:
    assert answer(tmp_path, Stand("right")) == RunProgramAnswer("passed")


def test_tests_that_accept_an_empty_or_a_raising_program_judge_nothing(tmp_path: Path) -> None:
    for number, word in enumerate(("", "raise RuntimeError")):
        found = answer(tmp_path / str(number), Stand("right", word))
        name = (EMPTY, RAISES)[number]
        assert (found.outcome, found.weak_tests) == ("fault", (name,))
        assert naming("t/1", name).search(found.detail)


def test_tests_that_accept_none_or_the_first_argument_are_named_and_judge(tmp_path: Path) -> None:
    found = answer(tmp_path, Stand("right", "return None", "return given[0]"))
    assert (found.outcome, found.weak_tests) == ("passed", (RETURNS_NONE, RETURNS_FIRST))
    assert answer(tmp_path, Stand(), asked("wrong")).outcome == "wrong"


@pytest.mark.parametrize("outcome", ["timeout", "memory", "crashed", "refused", "error"])
def test_what_does_not_pass_is_not_accepted(tmp_path: Path, outcome: ProgramOutcome) -> None:
    assert answer(tmp_path, Stand("right", otherwise=outcome)).weak_tests == ()


def test_tests_are_tried_once_for_all_programs_of_a_task(tmp_path: Path) -> None:
    stand = Stand("right")
    with SelfCheckingSandbox(stand, "bwrap", tmp_path) as checked, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: checked.run(asked(f"right {n}")), range(20)))
    assert {one.outcome for one in answers} == {"passed"}
    assert len(stand.seen) == 20 + 4


def test_what_is_known_is_known_in_the_next_run_too(tmp_path: Path) -> None:
    answer(tmp_path, Stand("right", "return None"))
    stand = Stand("right")
    assert answer(tmp_path, stand).weak_tests == (RETURNS_NONE,)
    assert stand.seen == ["right"]


@pytest.mark.parametrize(
    "request_",
    [
        asked(tests="assert add(1, 2) == 4\n"),
        asked(task="t/2"),
        asked(seconds=1.0),
        asked(memory=64),
        asked(reference="class add: pass"),
    ],
)
def test_other_tests_are_tried_anew(tmp_path: Path, request_: RunProgram) -> None:
    answer(tmp_path, Stand("right", "return None"))
    stand = Stand("right")
    assert answer(tmp_path, stand, request_).weak_tests == ()
    assert len(stand.seen) == 5


def test_nothing_is_believed_of_another_test_runner_or_sandbox(tmp_path: Path) -> None:
    answer(tmp_path, Stand("right", "return None"))
    for kind, code in (("none", None), ("bwrap", "another")):
        with SelfCheckingSandbox(Stand("right"), kind, tmp_path, code) as checked:
            assert checked.run(asked()).weak_tests == ()


def test_the_test_runners_code_is_part_of_what_is_known() -> None:
    code = judging_code()
    folder = Path(soundness.__file__).parent
    assert (folder / "guest" / "test_runner.py").is_file()
    assert len(code) == 64


def test_a_fault_of_the_sandbox_says_nothing_and_is_not_kept(tmp_path: Path) -> None:
    found = answer(tmp_path, Stand("right", otherwise="fault"))
    assert (found.outcome, found.weak_tests) == ("passed", ())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "other", "texts": []}', '{"texts": 3}'])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    answer(tmp_path, Stand("right", "return None"))
    (file,) = tmp_path.glob("*.json.gz")
    file.write_bytes(gzip.compress(content.encode()) if content else b"no file of ours")
    stand = Stand("right")
    assert answer(tmp_path, stand).weak_tests == ()
    assert len(stand.seen) == 5
    assert json.loads(gzip.decompress(file.read_bytes()))["texts"] == []


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert answer(tmp_path / "file", Stand("right", "return None")).weak_tests == (RETURNS_NONE,)


def test_the_oldest_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "_MOST_TASKS", 3)
    for number in range(6):
        answer(tmp_path, Stand("right"), asked(task=f"t/{number}"))
    assert len(list(tmp_path.iterdir())) == 3
