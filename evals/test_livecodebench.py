"""LiveCodeBench: problems of programming contests, by the month of the contest, judged by running programs."""

from __future__ import annotations

import ast
import base64
import functools
import json
import pickletools
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from typing_extensions import TypedDict

from pytest_touchstone import (
    CallTests,
    ChatForm,
    Dataset,
    FewShot,
    Generate,
    HarnessError,
    InputOutputTests,
    Published,
    RunProgram,
    RunProgramAnswer,
    Scores,
    Turn,
    benchmark,
)
from pytest_touchstone.metrics.code import PROGRAM_METRICS, ProgramGrader
from pytest_touchstone.metrics.code.extract import MAX_CHARACTERS
from pytest_touchstone.metrics.code.test_scripts import unlimited_int_digits

HUB = "livecodebench/code_generation_lite"
RELEASES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
"""The files of releases v1 to v6; each has the problems that its release added."""

SECONDS = 6
"""The limit of CPU time of a test; the reference's is of wall time."""

MEMORY = 1024
"""MiB; the reference has no limit."""

MOST_TESTS = 1 << 29
"""The most bytes that the private tests of a problem may unpack to."""


class Row(TypedDict):
    """A problem with its tests as published; ``month`` is that of its contest, ``func_name`` empty for whole programs.

    ``solution`` is a right program; the published rows have none.
    """

    question_id: str
    question_content: str
    starter_code: str
    difficulty: Literal["easy", "medium", "hard"]
    month: str
    func_name: str
    public_test_cases: str
    private_test_cases: str
    solution: str


def problem(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the month and the function's name; its private tests are read when they are needed."""
    func_name = json.loads(row["metadata"] or "{}").get("func_name") or ""
    if func_name and not func_name.isidentifier():
        raise ValueError(f"metadata.func_name is {func_name[:60]!r}; it must be the name of a function")
    parse_cases(row["public_test_cases"])
    month = datetime.fromisoformat(row["contest_date"]).strftime("%Y-%m")
    return {**row, "month": month, "func_name": func_name, "solution": row.get("solution") or ""}


# Tests


def parse_cases(published: str) -> list[tuple[str, str]]:
    """Parse a JSON list of tests: their inputs and outputs."""
    cases = [(case["input"], case["output"]) for case in json.loads(published)]
    if not all(isinstance(text, str) for case in cases for text in case):
        raise TypeError("a test has an input or an output that is no text")
    return cases


def unpack_cases(packed: str) -> str:
    """Return the JSON text of private tests, which most rows have as base64 of zlib of a pickled text.

    A pickle can run code when it is loaded, so this one is not: its instructions are read up to the first text.
    """
    if packed.lstrip().startswith("["):
        return packed
    stream = zlib.decompressobj()
    pickled = stream.decompress(base64.b64decode(packed), MOST_TESTS)
    if not stream.eof:
        raise ValueError(f"they are cut off, or unpack to more than {MOST_TESTS >> 20} MiB")
    return next(text for _, text, _ in pickletools.genops(pickled) if isinstance(text, str))


@functools.lru_cache(maxsize=4)  # a problem has many programs
def problem_cases(question_id: str, public: str, private: str, func_name: str) -> Sequence[Any]:
    """Return the public and then the private tests; of a function the arguments and the value as data.

    Raises ``HarnessError`` for tests that cannot be read.
    """
    try:
        cases = parse_cases(public) + parse_cases(unpack_cases(private))
        if not cases:
            raise ValueError("it has no tests")
        if not func_name:
            return cases
        with unlimited_int_digits():
            return [([*map(json.loads, given.split("\n"))], json.loads(value)) for given, value in cases]
    except Exception as error:  # whatever a broken row leads to
        reason = f"{type(error).__name__}: {error}"
        raise HarnessError(
            f"problem {question_id}: its tests cannot be read ({reason}); download the file again"
        ) from error


# Programs, in the form in which the reference runs them


MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
IMPORTS = "".join(
    [
        *(f"from {name} import *\n" for name in (*MODULES, "builtins", "typing")),
        *(f"import {name}\n" for name in MODULES),
        "sys.setrecursionlimit(50000)\n",
    ]
)
"""What stands before every program."""

SCRIPT = """\
__name__ = "program"

def wrapped_function():
    pass

try:
    wrapped_function()
except SystemExit:
    pass
"""
CALLS = """\
import json

def check(function, cases):
    for arguments, expected in cases:
        answer = function(*arguments)
        answer = list(answer) if isinstance(answer, tuple) else answer
        assert answer == expected
"""
"""The tests of a function. One object has all calls; a tuple is as good as a list, but not one within another."""


def module(program: str) -> str:
    """Return a program whose functions are called."""
    return f"{IMPORTS}\n\n{program}"


def script(program: str) -> str:
    """Return a program that reads and prints as the body of a function, after its imports.

    A main guard at the end is taken off. What is no Python, or very long, stays as it is.
    """
    if len(program) > MAX_CHARACTERS:
        return program
    try:
        with unlimited_int_digits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's escapes
            body = ast.parse(program).body
            if body and isinstance(last := body[-1], ast.If):
                body[-1:] = last.body if ast.unparse(last.test) == "__name__ == '__main__'" else [last]
            imports: list[ast.stmt] = [
                node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))
            ]
            wrapped = ast.parse(SCRIPT)
            wrapped.body[1].body = [node for node in body if node not in imports]  # type: ignore[attr-defined]
            return "\n".join((IMPORTS, ast.unparse(ast.Module(imports, [])), ast.unparse(wrapped)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return program


def request(row: Mapping[str, Any], program: str, benchmark: str) -> RunProgram:
    """Return the request to run a program on all tests of its problem."""
    name, published = row["func_name"], (row["public_test_cases"], row["private_test_cases"])
    cases = problem_cases(row["question_id"], *published, name)
    tests: CallTests | InputOutputTests
    if name:
        wrap, called = module, f"Solution().{name}" if "class Solution" in program else name
        with unlimited_int_digits():
            code = f"{CALLS}\n\ncheck({called}, json.loads({json.dumps(cases)!r}))\n"
        tests = CallTests(code=code, names=(called.partition("(")[0],), calls=len(cases))
    else:
        wrap, tests = script, InputOutputTests(cases, rule="lines")
    return RunProgram(
        wrap(program.strip()),
        tests,
        task=f"{benchmark}/{row['question_id']}",
        seconds=SECONDS,
        memory=MEMORY,
        reference=wrap(row["solution"].strip()) if row["solution"] else None,
    )


@dataclass(frozen=True, slots=True)
class DifficultyGrader(ProgramGrader):
    """A grader whose scores are there a second time under the problem's difficulty."""

    def scores(self, row: Mapping[str, Any], answers: Sequence[RunProgramAnswer]) -> dict[str, float]:
        """Return ``pass@k``, and the same as ``pass@k_easy`` and so on."""
        scores = ProgramGrader.scores(self, row, answers)
        passes = {f"{name}_{row['difficulty']}": scores[name] for name in PASSES if name in scores}
        return scores | passes


PASSES = tuple(name for name in PROGRAM_METRICS if name.startswith("pass@"))
LIVECODEBENCH = DifficultyGrader(request, first_block=False)

# The words of the prompt are the authors' (lcb_runner/prompts/code_generation.py)

SYSTEM = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests. You will NOT return anything except "
    "for the program."
)
WITH_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)
WITHOUT_STARTER = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows."
)

EXAMPLES = (
    {
        "question_content": "A row of lamps is described by a text of the letters o (on) and x (off). Print the number "
        "of lamps that are on.\n\nInput\n\nOne line of 1 to 1000 letters.\n\nOutput\n\nThe number of lamps that are "
        "on.\n\nSample Input\n\noxxo\n\nSample Output\n\n2",
        "starter_code": "",
        "answer": "print(input().count('o'))",
    },
    {
        "question_content": "Given a list of whole numbers, return the sum of those that are even.\n\nExample 1:\n\n"
        "Input: numbers = [1,2,3,4]\nOutput: 6\n\nConstraints:\n\n1 <= numbers.length <= 1000\n"
        "-1000 <= numbers[i] <= 1000",
        "starter_code": "class Solution:\n    def sumOfEven(self, numbers: List[int]) -> int:\n        ",
        "answer": "class Solution:\n    def sumOfEven(self, numbers: List[int]) -> int:\n"
        "        return sum(number for number in numbers if number % 2 == 0)",
    },
)
"""The solved problem before that of a model without a chat template: for whole programs, and for functions."""


def chat_question(row: Row) -> str:
    """Return a problem as a chat is asked it."""
    starter = row["starter_code"]
    words, code = (WITH_STARTER, starter) if starter else (WITHOUT_STARTER, "# YOUR CODE HERE")
    return (
        f"### Question:\n{row['question_content']}\n\n### Format: {words}\n```python\n{code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n"
    )


def plain_question(row: Mapping[str, Any]) -> str:
    """Return a problem as a model without a chat template is asked it; ``answer`` is that of an example."""
    starter = f"### Starter Code\n{row['starter_code']}\n\n" if row["starter_code"] else ""
    answer = f"{row['answer']}\n\n" if "answer" in row else ""
    return f"### Question\n{row['question_content']}\n\n{starter}### Answer\n\n{answer}"


@benchmark(
    "livecodebench",
    version=1,
    data=Dataset(HUB, local="livecodebench/code_generation_lite", files=RELEASES),
    published=Published(
        1055,
        paper="Jain et al. 2024, arXiv 2403.07974",
        source="LiveCodeBench/LiveCodeBench, scenario codegeneration; data code_generation_lite, release_v6",
        own_rows="problems of our own",
    ),
    row=Row,
    prepare=problem,
    group="month",
    asks=(Generate, RunProgram),
    primary="pass@1",
    metrics=(
        *PROGRAM_METRICS,
        *(f"{name}_{level}" for name in PASSES for level in ("easy", "medium", "hard")),
    ),
    grader=LIVECODEBENCH,
)
def test_livecodebench(example: Row, fewshot: FewShot) -> Scores:
    """LiveCodeBench (Jain et al. 2024), code generation, 0-shot, 2000 new tokens; ``--eval-samples`` per problem.

    The rows are those of ``code_generation_lite``, release_v6: 1055 problems of May 2023 to April 2025. Releases v1 to
    v6 added 400, 111, 101, 101, 167 and 175 of them, a file each. ``--eval-data hub`` takes all six files, and
    ``--eval-data DIR`` those in ``DIR/livecodebench/code_generation_lite/``. The shipped problems are our own.

    Months are groups. To ask what is newer than a model's training, choose them, here from August 2024 on:
    ``--eval-tasks 'livecodebench/2024-0[89],livecodebench/2024-1*,livecodebench/2025-*'``. Without a choice the report
    has the score of every month, so that those before a date stand beside those after it.

    Prompt of a chat: the authors' system message, then "### Question:", the statement, "### Format:" with their words,
    the starter code in a block or the line "# YOUR CODE HERE", and "### Answer: (use the provided format with
    backticks)". The program is the answer's last closed block. Other models are given one solved problem, then
    "### Question", the statement, "### Starter Code" with it if there is one, and "### Answer"; the text ends before
    "###", and is the program. The solved problem is ours, as theirs are LeetCode's and Codeforces'.

    A program passes when it passes all public and private tests. Each has 6 s of CPU time. Before it stand the authors'
    star imports (``from math import *``, ...). A whole program is run as the body of a function, without its ``if
    __name__ == "__main__":``, so that one whose functions declare a variable of the program ``global`` fails, as it
    does there. Of its output the lines are compared, stripped; lines of numbers also pass where the numbers are exactly
    equal (1.50 and 1.5). A method of ``Solution``, or a function, is called with JSON values, always of one object; its
    value must equal the expected one, a tuple counts as a list.

    - ``pass@k`` (primary: k = 1): as for HumanEval. ``pass@k_easy``, ``pass@k_medium`` and ``pass@k_hard``: over the
      problems of one difficulty.

    The authors draw 10 samples at temperature 0.2, top_p 0.95 (``--eval-samples 10``, which has both by default), with
    2000 new tokens; cards of reasoning models have 32,000 and more (``--eval-max-new-tokens``). Scores are comparable
    with theirs for the same months, samples and limit. Not comparable: other windows of time; a model's answers without
    a chat template; answers that the authors' vLLM runner ends at "###", here only those of the plain form are.

    Verdicts differ where the reference's process does not behave as Python does: it has no ``open(0)``, no
    ``sys.stdin.buffer`` and ``sys.stdout.buffer``, and no ``quit()``; and it can be made to pass any program. Here a
    program has 1 GiB of memory at most, and no numpy.
    """
    asked = fewshot.generate(
        plain_question(EXAMPLES[bool(example["starter_code"])]) + plain_question(example),
        stop=("###",),
        max_new_tokens=2000,
        chat=ChatForm(chat_question(example), stop=()),
        sampled=True,
    )
    asked = replace(asked, turns=(Turn("system", SYSTEM), *asked.turns))
    return (yield from LIVECODEBENCH.grade(asked, example, "livecodebench"))
