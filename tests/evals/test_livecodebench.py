"""LiveCodeBench: what is asked, which rows are read, and which programs pass in the sandbox."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgramAnswer
from pytest_touchstone.core.tasks import TaskSelection
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.attack_tasks import TASKS, Attack, PrintTask, attacks
from tests.support.code_runs import Bench, by_word
from tests.support.lines import naming
from tests.support.livecodebench import MODULE, SHIPPED, cases_text, request, row
from tests.support.sandbox_here import opened_here

BENCH = Bench("livecodebench")
EXAMPLES = BENCH.loaded.dataset.examples
METHOD = next(place for place, example in enumerate(EXAMPLES) if example.row["func_name"])
SCRIPT = next(place for place, example in enumerate(EXAMPLES) if not example.row["func_name"])


def pack(text: str) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with opened_here(workers=2) as opened:
        yield opened


# What is asked


def test_a_chat_has_the_authors_system_message_and_their_form_of_a_problem() -> None:
    for place, words, code in (
        (SCRIPT, "Read the inputs from stdin", "# YOUR CODE HERE"),
        (METHOD, "You will use the following starter code", EXAMPLES[METHOD].row["starter_code"]),
    ):
        system, user = BENCH.ask(place, [""], by_word).generate.turns
        assert (system.role, user.role) == ("system", "user")
        assert system.text.startswith("You are an expert Python programmer.")
        statement = EXAMPLES[place].row["question_content"]
        begin, end = f"### Question:\n{statement}\n\n### Format: {words}", f"\n```python\n{code}\n```\n\n"
        assert user.text.startswith(begin)
        assert user.text.endswith(f"{end}### Answer: (use the provided format with backticks)\n\n")


def test_a_model_without_a_template_is_shown_a_solved_problem_of_the_same_kind() -> None:
    script, method = (BENCH.ask(place, [""], by_word).generate for place in (SCRIPT, METHOD))
    for asked, count in ((script, 0), (method, 2)):
        assert asked.prompt.count("### Question\n") == asked.prompt.count("### Answer\n\n") == 2
        assert asked.prompt.count("### Starter Code\n") == count
        assert asked.prompt.endswith("### Answer\n\n")
        assert asked.stop == ("###",)
        assert asked.max_new_tokens == 2000
    assert "class Solution" in method.prompt.split("### Answer\n\n")[1]


def test_the_shown_solutions_solve_the_shown_problems(sandbox: Sandbox) -> None:
    script, method = (example["answer"] for example in MODULE.EXAMPLES)
    assert sandbox.run(request(script, [("oxxo\n", "2\n")])).outcome == "passed"
    assert sandbox.run(request(method, [("[1, 2, 3, 4]", "6")], "sumOfEven")).outcome == "passed"


def test_the_last_closed_block_is_the_program() -> None:
    text = "A draft:\n```python\nprint(1)\n```\nBetter:\n```python\nprint('right')\n```\nIt prints."
    asked = BENCH.ask(SCRIPT, [text], by_word, chat=True)
    assert "print('right')" in asked.programs[0].program
    assert "print(1)" not in asked.programs[0].program


def test_scores_are_there_a_second_time_under_the_difficulty() -> None:
    for place, example in enumerate(EXAMPLES):
        scores = BENCH.ask(place, ["right"], by_word).scores
        assert scores == {"pass@1": 1.0, f"pass@1_{example.row['difficulty']}": 1.0, "no_answer": 1.0}
        assert scores.keys() - {"no_answer"} <= set(BENCH.spec.metrics)
    assert {example.row["difficulty"] for example in EXAMPLES} == {"easy", "medium", "hard"}


def test_the_months_of_contests_are_groups_that_a_pattern_chooses() -> None:
    months = [example.group for example in EXAMPLES]
    assert months == [contest["contest_date"][:7] for contest in SHIPPED]
    window = TaskSelection.of(["livecodebench/2024-0[6-9],livecodebench/2024-1*,livecodebench/2025-*"])
    chosen = {month for month in months if window.takes(BENCH.spec, month)}
    assert chosen == {"2024-08", "2024-11", "2025-02"}
    assert EXAMPLES[-1].id == "livecodebench/2025-02/3"


# Rows


def test_packed_and_plain_private_tests_are_the_same() -> None:
    plain = cases_text(("1\n", "2\n"), ("3\n", "4\n"))
    for packed in (
        plain,
        f" {plain}",
        pack(plain),
        base64.b64encode(zlib.compress(pickle.dumps(plain, 0))).decode(),
    ):
        tests = MODULE.problem_cases("t", cases_text(("0\n", "0\n")), packed, "")
        assert [*tests] == [("0\n", "0\n"), ("1\n", "2\n"), ("3\n", "4\n")]


class Hostile:
    """An object whose pickle would write a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_hostile_pickle_is_not_loaded(tmp_path: Path) -> None:
    written = tmp_path / "written"
    packed = base64.b64encode(zlib.compress(pickle.dumps([cases_text(("1", "1")), Hostile(written)])))
    pickle.loads(pickle.dumps(Hostile(tmp_path / "loaded")))
    assert (tmp_path / "loaded").exists()
    assert [*MODULE.problem_cases("t", "[]", packed.decode(), "")] == [("1", "1")]
    assert not written.exists()


@pytest.mark.parametrize(
    "private",
    [
        "",
        "no tests",
        "[1]",
        '[{"input": 1, "output": "1"}]',
        pack(cases_text(("1", "1")))[:-40],
        pack("no json"),
        base64.b64encode(zlib.compress(pickle.dumps(7))).decode(),
        base64.b64encode(zlib.compress(b"junk")).decode(),
        pack("[" * 100_000),
    ],
)
def test_private_tests_that_cannot_be_read_are_named_in_one_line(private: str) -> None:
    with pytest.raises(HarnessError, match=naming("own_7")):
        MODULE.problem_cases("own_7", "[]", private, "")


def test_private_tests_that_unpack_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MOST_TESTS", 1 << 20)
    bomb = pack(" " * (1 << 22))
    with pytest.raises(HarnessError, match=naming("bomb", "1 MiB")):
        MODULE.problem_cases("bomb", "[]", bomb, "")


def test_arguments_that_are_no_json_are_named_in_one_line() -> None:
    for case in (("1\nx", "1"), ("1", "")):
        with pytest.raises(HarnessError, match=naming("t9")):
            MODULE.problem_cases("t9", cases_text(case), "[]", "f")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"contest_date": "in May"}, "in May"),
        ({"contest_date": None}, "TypeError"),
        ({"difficulty": "extreme"}, "difficulty"),
        ({"metadata": '{"func_name": "a b"}'}, "a b"),
        ({"metadata": "x"}, "JSONDecodeError"),
        ({"public_test_cases": "[{}]"}, "input"),
        ({"private_test_cases": 7}, "private_test_cases"),
        ({"question_content": None}, "question_content"),
    ],
)
def test_a_broken_row_is_refused_before_anything_runs(tmp_path: Path, change: Any, named: str) -> None:
    path = tmp_path / "livecodebench" / "code_generation_lite.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row(**change)) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=naming(path.name, "row 2", named)):
        Bench("livecodebench", data=str(tmp_path))


def test_the_files_of_several_releases_lie_side_by_side(tmp_path: Path) -> None:
    folder = tmp_path / "livecodebench" / "code_generation_lite"
    folder.mkdir(parents=True)
    for name, number in (("test6", 3), ("test", 0), ("test2", 1)):
        (folder / f"{name}.jsonl").write_text(json.dumps(SHIPPED[number]) + "\n", encoding="utf-8")
    examples = Bench("livecodebench", data=str(tmp_path)).loaded.dataset.examples
    assert [example.row["question_id"] for example in examples] == ["own_01", "own_02", "own_04"]


# Programs


def test_every_shipped_solution_passes_and_another_problems_does_not(sandbox: Sandbox) -> None:
    solutions = [example.row["solution"] for example in EXAMPLES]
    asked = [
        MODULE.request(example.row, program, "livecodebench")
        for number, example in enumerate(EXAMPLES)
        for program in (solutions[number], solutions[number - 1])
    ]
    outcomes = [future.result().outcome for future in map(sandbox.submit, asked)]
    assert outcomes[::2] == ["passed"] * len(EXAMPLES)
    assert "passed" not in outcomes[1::2]


def test_the_limits_are_the_references() -> None:
    script, method = (BENCH.ask(place, [""], by_word).programs[0] for place in (SCRIPT, METHOD))
    assert isinstance(script.tests, InputOutputTests)
    assert (script.seconds, script.tests.rule) == (6, "lines")
    assert isinstance(method.tests, CallTests)
    assert (method.seconds, method.tests.calls) == (6, 6)


def test_each_call_has_the_limit_and_so_has_the_programs_beginning(sandbox: Sandbox) -> None:
    computes = "from time import process_time\ndef compute(seconds):\n    end = process_time() + seconds\n"
    computes += "    while process_time() < end: pass\n"
    program = (
        computes + "compute({})\nclass Solution:\n    def f(self, n):\n        compute(n)\n        return 0\n"
    )
    for beginning, calls, outcome in (
        (0.1, (0.1, 0.1, 0.1), "passed"),
        (0, (0, 0.4, 0), "timeout"),
        (0.4, (0, 0, 0), "timeout"),
    ):
        tests = [(str(seconds), "0") for seconds in calls]
        answer = sandbox.run(request(program.format(beginning), tests, "f", seconds=0.2))
        assert answer.outcome == outcome, answer.detail


def test_a_second_verdict_as_human_evals_is_there_for_functions() -> None:
    program = "class Solution:\n    def f(self, n):\n        return n\n"
    with opened_here(workers=1, grader="reference") as opened:
        right = opened.run(request(program, [("1", "1")], "f"))
        wrong = opened.run(request(program, [("1", "2")], "f"))
    assert (right.outcome, right.reference_outcome) == ("passed", "passed")
    assert (wrong.outcome, wrong.reference_outcome) == ("wrong", "wrong")


SUM = [("2 3\n", "5\n"), ("-4 4\n", "0\n"), ("100000000000000000000 1\n", "100000000000000000001\n")]
ADD = [
    ("2\n3", "5"),
    ("-4\n4", "0"),
    ("0.5\n0.25", "0.75"),
    ('"ab"\n"c"', '"abc"'),
    ("[1]\n[2, 3]", "[1, 2, 3]"),
]
RIGHT_HERE = {"print_other_digits_stdio", "print_underscores_stdio", "homoglyph_name"}
"""Two print the right numbers in ways that only the rule of CodeContests does not read; one leaves ``add`` to the star
imports before every program, as ``operator.add``."""

ATTACKS = [attack for attack in attacks() if attack.task in ("add", "sum") and attack.name not in RIGHT_HERE]
FORGERIES = [
    attack
    for attack in ATTACKS
    if attack.name.startswith(
        ("equal_", "frame_walk_l", "patch_j", "redefine", "class_as", "callable", "exit_stdio")
    )
]


def verdict(sandbox: Sandbox, attack: Attack, *, method: bool) -> RunProgramAnswer:
    """The verdict on a hostile program; with ``method`` its function is a method of ``Solution``."""
    program = attack.program("/etc/passwd", 1, "HOME")
    if isinstance(TASKS[attack.task], PrintTask):
        return sandbox.run(request(program, SUM, seconds=1))
    if method:
        program += (
            "\nclass Solution:\n    def add(self, *given, **named):\n        return add(*given, **named)\n"
        )
    return sandbox.run(replace(request(program, ADD, "add", seconds=0.5), memory=256))


def test_no_program_forges_its_verdict(sandbox: Sandbox) -> None:
    assert len(FORGERIES) >= 10
    assert [
        a.name for a in FORGERIES if verdict(sandbox, a, method=True).outcome in ("passed", "fault")
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("method", [True, False])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_no_hostile_program_passes(sandbox: Sandbox, attack: Attack, method: bool) -> None:
    assert verdict(sandbox, attack, method=method).outcome not in ("passed", "fault")
