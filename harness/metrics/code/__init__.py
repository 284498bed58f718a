"""Programs that a checkpoint has written: what of its text is run, on what tests, and what that is worth.

``extract`` asks a chat and takes the program out of a text (``sanitize`` out of a chat's). ``rows`` brings the
published forms of a task into one, ``calling`` makes its tests call the program, and ``pass_at_k`` scores the outcomes.
``grader`` asks for a program to be run, and is these steps in order, for benchmarks and for ``touchstone grade``.
"""

from __future__ import annotations

from harness.metrics.code.extract import APPS_STOPS as APPS_STOPS
from harness.metrics.code.extract import DOCSTRING_STOPS as DOCSTRING_STOPS
from harness.metrics.code.extract import FENCE_STOPS as FENCE_STOPS
from harness.metrics.code.extract import HUMANEVAL_STOPS as HUMANEVAL_STOPS
from harness.metrics.code.extract import MBPP_STOPS as MBPP_STOPS
from harness.metrics.code.extract import evalplus_chat as evalplus_chat
from harness.metrics.code.extract import evalplus_turns as evalplus_turns
from harness.metrics.code.extract import script_program as script_program
from harness.metrics.code.grader import HUMANEVAL as HUMANEVAL
from harness.metrics.code.grader import MBPP as MBPP
from harness.metrics.code.grader import STDIO as STDIO
from harness.metrics.code.grader import ProgramGrader as ProgramGrader
from harness.metrics.code.pass_at_k import PROGRAM_METRICS as PROGRAM_METRICS
from harness.metrics.code.rows import HumanEvalRow as HumanEvalRow
from harness.metrics.code.rows import MbppRow as MbppRow
from harness.metrics.code.rows import StdioRow as StdioRow
from harness.metrics.code.rows import apps_row as apps_row
from harness.metrics.code.rows import contest_row as contest_row
from harness.metrics.code.rows import humaneval_row as humaneval_row
from harness.metrics.code.rows import mbpp_row as mbpp_row
from harness.metrics.code.rows import reads_and_prints as reads_and_prints
