"""Programs written by a checkpoint: the part of a text that is run, the tests, and the scores.

``extract`` asks a chat and takes the program out of a text. ``rows`` brings the published forms of a task into one, and
``calling`` makes its tests call the program. ``grader`` asks for a program to be run, scores the outcomes, and is these
steps in order, for benchmarks and for ``touchstone score``. ``plus`` and ``plus_rules`` compare a program with the
canonical solution, as EvalPlus does.
"""

from __future__ import annotations

from pytest_touchstone.metrics.code.extract import (
    APPS_STOPS,
    DOCSTRING_STOPS,
    FENCE_STOPS,
    HUMANEVAL_STOPS,
    MBPP_STOPS,
    evalplus_chat,
    evalplus_turns,
    script_program,
)
from pytest_touchstone.metrics.code.grader import (
    CANONICAL,
    HUMANEVAL,
    MBPP,
    PROGRAM_METRICS,
    STDIO,
    STDIO_TASKS,
    ProgramGrader,
)
from pytest_touchstone.metrics.code.plus import (
    PLUS,
    PLUS_DOCSTRING_STOPS,
    PLUS_FUNCTION_STOPS,
    PLUS_TASKS,
    PlusRow,
    ask_plus,
)
from pytest_touchstone.metrics.code.rows import (
    HumanEvalRow,
    MbppRow,
    StdioRow,
    apps_row,
    contest_row,
    humaneval_row,
    mbpp_row,
    reads_and_prints,
)

__all__ = [
    "APPS_STOPS",
    "CANONICAL",
    "DOCSTRING_STOPS",
    "FENCE_STOPS",
    "HUMANEVAL",
    "HUMANEVAL_STOPS",
    "MBPP",
    "MBPP_STOPS",
    "PLUS",
    "PLUS_DOCSTRING_STOPS",
    "PLUS_FUNCTION_STOPS",
    "PLUS_TASKS",
    "PROGRAM_METRICS",
    "STDIO",
    "STDIO_TASKS",
    "HumanEvalRow",
    "MbppRow",
    "PlusRow",
    "ProgramGrader",
    "StdioRow",
    "apps_row",
    "ask_plus",
    "contest_row",
    "evalplus_chat",
    "evalplus_turns",
    "humaneval_row",
    "mbpp_row",
    "reads_and_prints",
    "script_program",
]
