"""EvalPlus's comparison of a program's outputs with those of the canonical solution, on inputs alone.

This text runs in the process of the tests, where nothing but the standard library is: it imports nothing of the
harness. Each input is given to the canonical solution, once for all programs, and to the program, each time as a copy
of its own. The outputs are equal by ``==``, or, where the task has a tolerance, of one type and length and near each
other. A tolerance of 0 becomes 1e-6 at the first expected output that is a float, or a list or tuple of floats alone.
It stays so for the later inputs of that part, the task's own or EvalPlus's. Some tasks have rules of their own, below.
Where two sets differ, the tolerance is still tried on the outputs in their order.

All is as in EvalPlus 0.3.1 (evaluate.py, eval/__init__.py, eval/_special_oracle.py), with two differences. Nested lists
must have equal lengths on all levels, where NumPy may broadcast. And find_zero (HumanEval/32) passes where the
polynomial is near 0, as EvalPlus means it; that version counts every solution as a failure.
"""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

LEAST_SECONDS = 1.0
SLOWER = 4.0
"""The limit of CPU time on an input: this many times what the canonical solution took, and at least a second."""

RELATIVE = 1e-7
FLOATS = 1e-6

AS_SETS = (
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
)
"""The functions of MBPP whose outputs are compared as sets."""

FOUND = ("check_str", "text_match_three", "text_starta_endb")
"""The functions of MBPP of whose outputs only counts whether there is one."""


def reference(source: str, name: str) -> Callable[..., Any]:
    """The function of the canonical solution, in names of its own."""
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "<reference>", "exec", dont_inherit=True), space)
    found: Callable[..., Any] = space[name]
    return found


def prepared(source: str, task: dict[str, Any]) -> Iterator[Any]:
    """The outputs of the canonical solution on a task's inputs, then these inputs, then facts about both.

    ``task`` has the ``name`` of the function, its ``inputs`` as a JSON list of lists of arguments, and the ``shape``
    that these are brought into. The facts are the limits of CPU time, and whether each output is made of floats. A
    limit allows for what is done with an output before the next is asked for: a program's are written down too.
    """
    right = reference(source, task["name"])
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    inputs = [shaped(given, task["shape"]) for given in json.loads(task["inputs"])]
    facts: dict[str, Any] = {"limits": [], "floats": []}
    for arguments in inputs:
        own, began = copy.deepcopy(arguments), time.process_time()
        found = right(*own)
        facts["floats"].append(floats(found))
        # Of some outputs only counts whether there are any, and these cannot be kept.
        yield (found is not None) or None if task["name"] in FOUND else found
        facts["limits"].append(max(LEAST_SECONDS, SLOWER * (time.process_time() - began)))
        del found  # before there is another that is as large
    yield from inputs
    yield facts


def judge(program: Callable[..., Any], known: Any, task: dict[str, Any], passed: list[int]) -> None:
    """Compare the program's outputs with those ``prepared``; raise ``AssertionError`` for the first that is wrong.

    ``task`` has the ``name`` of the function, the number of the task's own inputs (``base``), and ``atol``. The number
    of each input on which the program is right is appended to ``passed``.
    """
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    atol, facts = task["atol"], known[-1]
    count = len(facts["limits"])
    for number, (same, output) in enumerate(outputs_of(program, known, facts["limits"], task["base"])):
        if number == task["base"]:
            atol = task["atol"]  # EvalPlus judges the two parts apart
        if atol == 0 and facts["floats"][number]:
            atol = FLOATS
        fine = same or agree(task["name"], known[count + number], output, known[number], atol)
        assert fine, f"input {number}"
        passed.append(number)


def outputs_of(
    program: Callable[..., Any], known: Any, limits: list[float], base: int
) -> Iterator[tuple[bool, Any]]:
    """Yield for each input whether the output is the expected one to the letter, and else the output.

    A program of another process is asked for many at once, but not for the task's own (``base``) with others: one that
    takes too long may take answers with it that have not been sent.
    """
    each, count = getattr(program, "__each__", None), len(limits)
    if each is not None:
        for part in (slice(base), slice(base, count)):
            yield from each(known.texts[count : 2 * count][part], limits[part], known.texts[:count][part])
        return
    for number in range(count):
        yield False, program(*copy.deepcopy(known[count + number]))


def agree(name: str, arguments: Any, output: Any, expected: Any, atol: float) -> bool:
    """Return whether an output is as good as the expected one."""
    if name == "find_zero":
        return bool(
            abs(sum(part * math.pow(output, power) for power, part in enumerate(arguments[0]))) <= 1e-4
        )
    if name in FOUND:
        return (output if isinstance(output, bool) else output is not None) == (expected is not None)
    same = set(output) == set(expected) if name in AS_SETS else output == expected
    if same or _also_right(name, arguments, output, atol):
        return True
    return atol != 0 and type(output) is type(expected) and near(output, expected, atol)


def _also_right(name: str, arguments: Any, output: Any, atol: float) -> bool:
    """Return whether a task of MBPP takes an output besides the canonical solution's."""
    if name == "are_equivalent":
        return True
    if name == "sum_div":
        return bool(output == 0)
    if name == "surface_Area":
        return bool(abs(output - _surface(*arguments)) <= atol)
    return name == "digit_distance_nums" and bool(output == _distance(*arguments))


def floats(value: Any) -> bool:
    """Return whether a value is a float, or a list or tuple of floats that is not empty."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(one, float) for one in value)
    return isinstance(value, float)


def near(output: Any, expected: Any, atol: float) -> bool:
    """Return whether all numbers of two values are near each other."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(output, (list, tuple)) or len(output) != len(expected):
            return False
        return all(near(one, other, atol) for one, other in zip(output, expected, strict=False))
    if not all(isinstance(one, (int, float, complex)) for one in (output, expected)):
        return False
    try:
        return bool(
            output == expected or abs(output - expected) <= atol + RELATIVE * abs(expected) < math.inf
        )
    except OverflowError:
        return False


def _surface(base: float, height: float) -> int:
    """The surface of a square pyramid whose height is that above its base."""
    slant = math.sqrt((base / 2) ** 2 + height**2)
    return round(base**2 + 2 * base * slant)


def _distance(one: int, other: int) -> int:
    """The sum of the differences of digits, the shorter number with zeros before it."""
    first, second = str(one), str(other)
    width = max(len(first), len(second))
    pairs = zip(first.zfill(width), second.zfill(width), strict=False)
    return sum(abs(int(a) - int(b)) for a, b in pairs)


def shaped(given: list[Any], shape: str) -> list[Any]:
    """The arguments as the task's function takes them: JSON has neither tuples nor sets nor complex numbers."""
    return list(SHAPES[shape](given))


def _all_tuples(value: Any) -> Any:
    return tuple(_all_tuples(one) for one in value) if isinstance(value, list) else value


SHAPES: dict[str, Callable[[list[Any]], Any]] = {
    "": lambda given: given,
    "arguments": lambda given: [tuple(one) for one in given],
    "items": lambda given: [[tuple(one) for one in part] for part in given],
    "first's items": lambda given: [[tuple(one) for one in given[0]], given[1]],
    "first": lambda given: [tuple(given[0]), *given[1:]],
    "second": lambda given: [given[0], tuple(given[1])],
    "arguments and items": lambda given: [tuple(tuple(one) for one in part) for part in given],
    "first and its lists": lambda given: [
        tuple(tuple(one) if isinstance(one, list) else one for one in given[0])
    ],
    "values": lambda given: [{key: tuple(value) for key, value in given[0].items()}, *given[1:]],
    "everything": _all_tuples,
    "sets": lambda given: [[set(one) if isinstance(one, list) and one else {} for one in given[0]]],
    "float, complex": lambda given: [float(given[0]), complex(given[1])],
    "complex": lambda given: [complex(given[0])],
}
"""The shapes by name: which lists are tuples, and so on."""
