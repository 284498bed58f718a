"""CodeContests: whole programs that read the standard input and print, judged on pairs of both."""

from __future__ import annotations

from pytest_touchstone import ChatForm, Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import FENCE_STOPS, STDIO, STDIO_TASKS, StdioRow, contest_row

TASK = (
    "Write a Python program that solves this problem. It reads from the standard input and prints to the "
    "standard output."
)


@benchmark(
    "codecontests",
    data=Dataset("deepmind/code_contests", local="codecontests/problems"),
    published=Published(
        165,
        paper="Li et al. 2022 (AlphaCode), arXiv 2203.07814",
        source="google-deepmind/code_contests",
        own_rows="problems of our own",
    ),
    prepare=contest_row,
    **STDIO_TASKS,
)
def test_codecontests(example: StdioRow, fewshot: FewShot) -> Scores:
    """CodeContests (Li et al. 2022), 0-shot, 1024 new tokens, in Python; ``--eval-samples`` per problem. The test
    split has 165 problems (as the paper says); the shipped ones are our own. Of more than 1000 problems 1000 are
    drawn with the run's seed.

    Prompt, our own: the statement, a sentence that asks for a Python program, and the beginning of a block of
    code. The program is the text up to the end of the block. A training row (``instruction``) is asked by its own
    prompt alone, and its program is the text, or its last block of code where it has one.

    The program is run on each of the problem's tests (public, private and generated ones) in the sandbox and
    passes when it prints what is expected on all of them; the first failure ends it. Words are compared without
    regard to case and white space, numbers within 1e-5 (execution/tester_sandboxer.cc). Limits are the problem's
    own for each test, else 10 s and 256 MiB. Problems that read or write files are left out.

    - ``pass@k`` (primary: k = 1): as for HumanEval. There is no other grader: this one is the reference's.

    Not comparable: AlphaCode's n@k, which picks n of k samples before it submits any. Nor are scores with a problem's
    own checker, which this set lacks: a right output that is not the expected one is wrong here.
    """
    own = "instruction" in example  # of a training row: its own prompt
    asked = example["instruction"] if own else f"{example['description'].strip()}\n\n{TASK}\n\n"
    request = fewshot.generate(
        asked if own else f"{asked}```python\n",
        stop=() if own else FENCE_STOPS,  # the first fence may be the one that opens a block
        max_new_tokens=1024,
        chat=ChatForm(asked, "```python\n", FENCE_STOPS if own else None),
        sampled=True,
    )
    return (yield from STDIO.grade(request, example, "codecontests"))
