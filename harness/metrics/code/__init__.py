"""Programs that a checkpoint has written: what of its text is run, on what tests, and what that is worth.

``extract`` asks a chat and takes the program out of a text (``sanitize`` out of a chat's). ``rows`` brings the
published forms of a task into one, ``calling`` makes its tests call the program, ``requests`` asks for a program to be
run, and ``pass_at_k`` scores the outcomes. ``grader`` is these steps in order, for benchmarks and for
``touchstone grade``.
"""

from __future__ import annotations

from harness.metrics.code.calling import base_name
from harness.metrics.code.extract import (
    APPS_STOPS,
    BLOCK_STOPS,
    DOCSTRING_STOPS,
    FENCE_STOPS,
    HUMANEVAL_STOPS,
    MBPP_STOPS,
    Program,
    beginning,
    chat_answer,
    chat_program,
    chat_question,
    evalplus_chat,
    function_program,
    script_program,
)
from harness.metrics.code.grader import HUMANEVAL, MBPP, STDIO, ProgramGrader
from harness.metrics.code.pass_at_k import (
    KS,
    PROGRAM_METRICS,
    pass_at,
    pass_at_k,
    program_scores,
)
from harness.metrics.code.requests import called_names, humaneval_request, mbpp_request, stdio_request
from harness.metrics.code.rows import (
    HumanEvalRow,
    MbppRow,
    StdioRow,
    apps_row,
    contest_row,
    humaneval_row,
    mbpp_row,
    reads_and_prints,
    unix_lines,
)

__all__ = [
    "APPS_STOPS",
    "BLOCK_STOPS",
    "DOCSTRING_STOPS",
    "FENCE_STOPS",
    "HUMANEVAL",
    "HUMANEVAL_STOPS",
    "KS",
    "MBPP",
    "MBPP_STOPS",
    "PROGRAM_METRICS",
    "STDIO",
    "HumanEvalRow",
    "MbppRow",
    "Program",
    "ProgramGrader",
    "StdioRow",
    "apps_row",
    "base_name",
    "beginning",
    "called_names",
    "chat_answer",
    "chat_program",
    "chat_question",
    "contest_row",
    "evalplus_chat",
    "function_program",
    "humaneval_request",
    "humaneval_row",
    "mbpp_request",
    "mbpp_row",
    "pass_at",
    "pass_at_k",
    "program_scores",
    "reads_and_prints",
    "script_program",
    "stdio_request",
    "unix_lines",
]
