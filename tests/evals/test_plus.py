"""HumanEval+ and MBPP+ in the sandbox: the canonical solutions pass, and what only looks right does not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from pytest_touchstone.metrics.code.plus import PLUS, plus_request
from tests.conformance.kit import Kit, kits
from tests.support.sandbox_here import opened_here

KITS = {kit.spec.name: kit for kit in kits() if kit.spec.name.endswith("_plus")}

QUICK = ("HumanEval/41", "HumanEval/60", "Mbpp/2", "Mbpp/770")
"""Tasks whose canonical solutions take no time."""

EQUAL_TO_ALL = """
class Equal:
    def __eq__(self, other): return True
    def __hash__(self): return 0

def {name}(*arguments): return Equal()
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with opened_here(workers=1) as found:
        yield found


def right(kit: Kit, row: dict[str, Any]) -> Any:
    asked = plus_request(row, "", kit.spec.name)
    return replace(asked, program=str(asked.reference))


@pytest.mark.slow
@pytest.mark.parametrize("name", KITS)
def test_the_canonical_solution_passes_and_a_value_equal_to_all_does_not(name: str, sandbox: Sandbox) -> None:
    kit = KITS[name]
    for example in [one for one in kit.examples if one.row["task_id"] in QUICK]:
        row = example.row
        assert sandbox.run(right(kit, row)).outcome == "passed"
        forged = EQUAL_TO_ALL.format(name=row["entry_point"])
        assert sandbox.run(replace(right(kit, row), program=forged)).outcome in ("wrong", "error")


@pytest.mark.slow
def test_a_program_may_be_right_on_the_tasks_own_inputs_alone(sandbox: Sandbox) -> None:
    kit = KITS["mbpp_plus"]
    row = next(one.row for one in kit.examples if len(one.row["plus_input"]) > 20)
    asked, name = right(kit, row), row["entry_point"]
    program = (
        f"{asked.program}\n_left, _right = {len(row['base_input'])}, {name}\n"
        f"def {name}(*given):\n"
        "    global _left\n"
        "    _left -= 1\n"
        "    return _right(*given) if _left >= 0 else None\n"
    )
    answer = sandbox.run(replace(asked, program=program))
    assert (answer.outcome, answer.tests) == ("wrong", len(row["base_input"]))
    assert PLUS.part(row, answer).outcome == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("hangs_on", ["the third", "the first that EvalPlus added"])
def test_an_input_has_a_limit_of_its_own_and_what_comes_after_it_counts_as_not_reached(
    sandbox: Sandbox, hangs_on: str
) -> None:
    """Inputs that are asked together are reported together: of those before the endless one some may be missing, but
    never the task's own before the first that was added."""
    kit = KITS["mbpp_plus"]
    row = next(one.row for one in kit.examples if one.row["task_id"] in QUICK)
    asked, own = right(kit, row), len(row["base_input"])
    answered = 2 if hangs_on == "the third" else own
    program = (
        f"{asked.program}\n_asked, _right = [], {row['entry_point']}\n"
        f"def {row['entry_point']}(*given):\n"
        "    _asked.append(0)\n"
        f"    while len(_asked) > {answered}:\n"
        "        pass\n"
        "    return _right(*given)\n"
    )
    answer = sandbox.run(replace(asked, program=program))
    assert answer.outcome == "timeout"
    assert answer.seconds < 5
    assert answer.tests == own if answered == own else 1 <= answer.tests <= answered < own
    assert PLUS.part(row, answer).outcome == ("passed" if answered == own else "timeout")


@pytest.mark.slow
def test_expected_outputs_are_kept_between_runs_and_a_damaged_file_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOUCHSTONE_CACHE", str(tmp_path))
    kit = KITS["humaneval_plus"]
    row = next(one.row for one in kit.examples if one.row["task_id"] in QUICK)
    wrong = replace(right(kit, row), program=f"def {row['entry_point']}(*given):\n    return 'x'\n")
    with opened_here(workers=1) as found:
        assert found.run(right(kit, row)).outcome == "passed"
    (kept,) = (tmp_path / "outputs").glob("*")
    data = json.loads(gzip.decompress(kept.read_bytes()))
    data["texts"][0] = '"x"'  # what is kept is what counts
    kept.write_bytes(gzip.compress(json.dumps(data).encode()))
    with opened_here(workers=1) as found:
        assert found.run(wrong).tests == 1
    kept.write_bytes(b"no file of ours")
    with opened_here(workers=1) as found:
        assert found.run(wrong).tests == 0
        assert found.run(right(kit, row)).outcome == "passed"
