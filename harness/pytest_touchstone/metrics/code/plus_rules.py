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

MIN_SECONDS = 1.0
MAX_SLOWDOWN = 4.0
"""The limit of CPU time on an input: a multiple of the canonical solution's time, and at least a second."""

RELATIVE_TOLERANCE = 1e-7
FLOAT_TOLERANCE = 1e-6

COMPARED_AS_SETS = (
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
)
"""The functions of MBPP whose outputs are compared as sets."""

PRESENCE_ONLY = ("check_str", "text_match_three", "text_starta_endb")
"""The functions of MBPP whose outputs count only as None or not None."""


def load_reference(source: str, name: str) -> Callable[..., Any]:
    """Return the function of the canonical solution, in its own namespace."""
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "<reference>", "exec", dont_inherit=True), space)
    function: Callable[..., Any] = space[name]
    return function


def prepare_references(source: str, task: dict[str, Any]) -> Iterator[Any]:
    """Yield the outputs of the canonical solution, then the inputs, then facts about both.

    The facts are the limits of CPU time, and whether each output is made of floats. A limit includes the time that the
    caller spends on an output before the next is requested, since a program's outputs are written down, too.

    Args:
        source: The canonical solution.
        task: The ``name`` of the function, its ``inputs`` as a JSON list of lists of arguments, and the ``shape`` into
            which the inputs are converted.

    """
    canonical = load_reference(source, task["name"])
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    inputs = [to_shape(arguments, task["shape"]) for arguments in json.loads(task["inputs"])]
    facts: dict[str, Any] = {"limits": [], "floats": []}
    for arguments in inputs:
        copied, started = copy.deepcopy(arguments), time.process_time()
        output = canonical(*copied)
        facts["floats"].append(has_only_floats(output))
        # Of some outputs only counts whether there are any, and these cannot be kept.
        yield (output is not None) or None if task["name"] in PRESENCE_ONLY else output
        facts["limits"].append(max(MIN_SECONDS, MAX_SLOWDOWN * (time.process_time() - started)))
        del output  # before there is another that is as large
    yield from inputs
    yield facts


def compare_outputs(
    program: Callable[..., Any], references: Any, task: dict[str, Any], passed: list[int]
) -> None:
    """Compare a program's outputs with the references; raise ``AssertionError`` for the first that is wrong.

    Args:
        program: The function to test.
        references: What ``prepare_references`` yields.
        task: The ``name`` of the function, the number of the task's own inputs (``base``), and ``atol``.
        passed: Receives the index of each input on which the program is right.

    """
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    atol, facts = task["atol"], references[-1]
    count = len(facts["limits"])
    for index, (identical, output) in enumerate(
        iter_outputs(program, references, facts["limits"], task["base"])
    ):
        if index == task["base"]:
            atol = task["atol"]  # EvalPlus judges the two parts apart
        if atol == 0 and facts["floats"][index]:
            atol = FLOAT_TOLERANCE
        is_right = identical or outputs_agree(
            task["name"], references[count + index], output, references[index], atol
        )
        assert is_right, f"input {index}"
        passed.append(index)


def iter_outputs(
    program: Callable[..., Any], references: Any, limits: list[float], base: int
) -> Iterator[tuple[bool, Any]]:
    """Yield for each input whether the output is literally the expected one, and the output if not.

    A program in another process gets many inputs at once, but the task's own (``base``) inputs separately: a program
    that takes too long may lose answers that have not been sent.
    """
    run_batch, count = getattr(program, "__each__", None), len(limits)
    if run_batch is not None:
        for section in (slice(base), slice(base, count)):
            yield from run_batch(
                references.texts[count : 2 * count][section],
                limits[section],
                references.texts[:count][section],
            )
        return
    for index in range(count):
        yield False, program(*copy.deepcopy(references[count + index]))


def outputs_agree(name: str, arguments: Any, output: Any, expected: Any, atol: float) -> bool:
    """Return whether an output is as good as the expected one."""
    if name == "find_zero":
        return bool(
            abs(sum(coefficient * math.pow(output, power) for power, coefficient in enumerate(arguments[0])))
            <= 1e-4
        )
    if name in PRESENCE_ONLY:
        return (output if isinstance(output, bool) else output is not None) == (expected is not None)
    is_equal = set(output) == set(expected) if name in COMPARED_AS_SETS else output == expected
    if is_equal or _is_accepted_alternative(name, arguments, output, atol):
        return True
    return atol != 0 and type(output) is type(expected) and is_close(output, expected, atol)


def _is_accepted_alternative(name: str, arguments: Any, output: Any, atol: float) -> bool:
    """Return whether a task of MBPP accepts an output that differs from the canonical solution's."""
    if name == "are_equivalent":
        return True
    if name == "sum_div":
        return bool(output == 0)
    if name == "surface_Area":
        return bool(abs(output - _pyramid_surface(*arguments)) <= atol)
    return name == "digit_distance_nums" and bool(output == _digit_distance(*arguments))


def has_only_floats(value: Any) -> bool:
    """Return whether a value is a float, or a non-empty list or tuple of floats."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(number, float) for number in value)
    return isinstance(value, float)


def is_close(output: Any, expected: Any, atol: float) -> bool:
    """Return whether all numbers of two values are close to each other."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(output, (list, tuple)) or len(output) != len(expected):
            return False
        return all(is_close(left, right, atol) for left, right in zip(output, expected, strict=False))
    if not all(isinstance(number, (int, float, complex)) for number in (output, expected)):
        return False
    try:
        return bool(
            output == expected
            or abs(output - expected) <= atol + RELATIVE_TOLERANCE * abs(expected) < math.inf
        )
    except OverflowError:
        return False


def _pyramid_surface(base: float, height: float) -> int:
    """Return the surface of a square pyramid from its base and its height."""
    slant = math.sqrt((base / 2) ** 2 + height**2)
    return round(base**2 + 2 * base * slant)


def _digit_distance(left: int, right: int) -> int:
    """Return the sum of the differences of digits, the shorter number padded with zeros."""
    first, second = str(left), str(right)
    width = max(len(first), len(second))
    pairs = zip(first.zfill(width), second.zfill(width), strict=False)
    return sum(abs(int(a) - int(b)) for a, b in pairs)


def to_shape(arguments: list[Any], shape: str) -> list[Any]:
    """Convert arguments to the types of the task's function; JSON has no tuples, sets or complex numbers."""
    return list(SHAPES[shape](arguments))


def _all_tuples(value: Any) -> Any:
    return tuple(_all_tuples(inner) for inner in value) if isinstance(value, list) else value


SHAPES: dict[str, Callable[[list[Any]], Any]] = {
    "": lambda arguments: arguments,
    "arguments": lambda arguments: [tuple(inner) for inner in arguments],
    "items": lambda arguments: [[tuple(inner) for inner in outer] for outer in arguments],
    "first's items": lambda arguments: [[tuple(inner) for inner in arguments[0]], arguments[1]],
    "first": lambda arguments: [tuple(arguments[0]), *arguments[1:]],
    "second": lambda arguments: [arguments[0], tuple(arguments[1])],
    "arguments and items": lambda arguments: [tuple(tuple(inner) for inner in outer) for outer in arguments],
    "first and its lists": lambda arguments: [
        tuple(tuple(inner) if isinstance(inner, list) else inner for inner in arguments[0])
    ],
    "values": lambda arguments: [{key: tuple(value) for key, value in arguments[0].items()}, *arguments[1:]],
    "everything": _all_tuples,
    "sets": lambda arguments: [
        [set(inner) if isinstance(inner, list) and inner else {} for inner in arguments[0]]
    ],
    "float, complex": lambda arguments: [float(arguments[0]), complex(arguments[1])],
    "complex": lambda arguments: [complex(arguments[0])],
}
"""The conversions by name: which lists are tuples, and so on."""
