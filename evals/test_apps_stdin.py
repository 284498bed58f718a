"""APPS: the problems whose programs read the standard input and print, judged on pairs of both."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import APPS_STOPS, STDIO, STDIO_TASKS, StdioRow, apps_row


@benchmark(
    "apps_stdin",
    data=Dataset("codeparrot/apps", local="apps_stdin/selected"),
    prepare=apps_row,
    missing="give --eval-data DIR with apps_stdin/selected.jsonl, rows of APPS without starter code",
    published=Published(
        paper="Hendrycks et al. 2021, arXiv 2105.09938",
        source="prompt and stops of bigcode-evaluation-harness, task apps",
    ),
    **STDIO_TASKS,
)
def test_apps_stdin(example: StdioRow, fewshot: FewShot) -> Scores:
    """APPS (Hendrycks et al. 2021), the problems that read the standard input, 0-shot, 1024 new tokens;
    ``--eval-samples`` per problem. Of more than 1000 problems 1000 are drawn with the run's seed.

    Prompt: "QUESTION:", the statement, "Use Standard Input format", "ANSWER:", each in a line of its own. The text
    ends before a line that begins with "QUESTION", "---" or "ANSWER"; the program is the text, or its last
    block of code where it has one. Judged as ``codecontests``.

    Not comparable: APPS's own strict accuracy, which compares outputs differently and includes problems in which a
    function is called. Nor is its share of tests passed, since the first failure ends a program.
    """
    own = "instruction" in example
    task = f"\nQUESTION:\n{example['description']}\nUse Standard Input format\nANSWER:\n"
    asked = example["instruction"] if own else task
    request = fewshot.generate(asked, stop=APPS_STOPS, max_new_tokens=1024, sampled=True)
    return (yield from STDIO.grade(request, example, "apps_stdin"))
