"""HumanEval+ and MBPP+ in the sandbox: the canonical solutions pass, and what only looks right does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from harness.engines.sandbox.sandbox import Sandbox
from harness.metrics.code.plus import plus_request
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


def right(kit: Kit, row: dict[str, Any], *, base: bool = False) -> Any:
    asked = plus_request(row, "", kit.spec.name, base=base)
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
    asked, name = right(kit, row, base=True), row["entry_point"]
    program = (
        f"{asked.program}\n_left, _right = {len(row['base_input'])}, {name}\n"
        f"def {name}(*given):\n"
        "    global _left\n"
        "    _left -= 1\n"
        "    return _right(*given) if _left >= 0 else None\n"
    )
    assert sandbox.run(replace(asked, program=program)).outcome == "passed"
    assert sandbox.run(replace(right(kit, row), program=program)).outcome == "wrong"
