"""BIG-Bench Hard without examples: the answer is looked for in what a model writes freely."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Graded, Published, Scores, Solution, benchmark
from pytest_touchstone.metrics.bbh import (
    BBH,
    BBH_HUB,
    BBH_PAPER,
    ROWS,
    BbhRow,
    bbh_header,
    flexible_answer,
    is_same_answer,
)


@benchmark(
    "bbh_zeroshot",
    data=Dataset(*BBH_HUB, local="bbh"),
    primary="exact_match_flexible",
    metrics=("exact_match_flexible", "exact_match_strict"),
    published=Published(
        ROWS, paper=BBH_PAPER, source="lm-evaluation-harness 0.4.13, tasks bbh_zeroshot_TASK (version 3)"
    ),
    solution=Solution(lambda row: row["target"]),
    **BBH,
)
def test_bbh_zeroshot(example: BbhRow, fewshot: FewShot) -> Scores:
    """BIG-Bench Hard (Suzgun et al. 2022), 27 tasks (6511 questions), without examples, greedy, 256 new tokens.

    Prompt: the task's description, an empty line, "Q: ", the question, a line break, "A:". The text ends before "</s>",
    "Q:" or "<|im_end|>".

    - ``exact_match_flexible`` (primary): the first answer in the text that has the task's form is the target. Forms are
      a letter in brackets or an option's text, True or False, yes or no, a number, brackets, the words of a list.
    - ``exact_match_strict``: the whole text is the target.

    Both ignore case, commas, quotes, backslashes, line ends, and a full stop at the end. A text begins with a space as
    a rule, so that the second is near 0. A lone hyphen counts as a number, as in the reference. Not comparable:
    ``bbh``.
    """
    header = bbh_header(example)
    stop = ("</s>", "Q:", "<|im_end|>")
    asked, target = example["input"], example["target"]
    answer = yield fewshot.generate(f"Q: {asked}\nA:", header=header, stop=stop, max_new_tokens=256)
    found = flexible_answer(example["file"], asked, answer.text)
    strict, flexible = (
        is_same_answer(answer.text, target),
        found is not None and is_same_answer(found, target),
    )
    scores = {"exact_match_flexible": float(flexible), "exact_match_strict": float(strict)}
    return Graded(scores, found is None, {"flexible": found}, target, same=is_same_answer)
