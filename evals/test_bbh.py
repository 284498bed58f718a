"""BIG-Bench Hard: 27 tasks of reasoning, answered after a chain of thought."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Generate, Graded, Scores, Shot, benchmark
from harness.metrics.bbh import DESCRIPTIONS, ROWS, answer_of, flexible_answer, same


class Row(TypedDict):
    """A question, its answer, and the name of its file, which is that of the task."""

    input: str
    target: str
    file: str


def prompt(row: Row) -> str:
    """The question, and the beginning of a chain of thought."""
    return f"Q: {row['input']}\nA: Let's think step by step.\n"


HUB = ("SaylorTwift/bbh", tuple(ROWS))
"""The set on the Hub, and its 27 configurations."""

BBH: dict[str, Any] = {
    "version": 1,
    "published_rows": ROWS,
    "row": Row,
    "asks": Generate,
    "group": "file",
    "paper": "Suzgun et al. 2022, arXiv 2210.09261",
}


@benchmark(
    "bbh",
    data=Dataset(*HUB, local="bbh", fewshot=Dataset(local="bbh/shots")),
    primary="exact_match",
    metrics=("exact_match",),
    num_fewshot=3,
    shots_pick="first",
    shots_fixed=True,
    shot=lambda row: Shot(prompt(row), row["target"], between=""),
    source="lm-evaluation-harness 0.4.13, tasks bbh_cot_fewshot_TASK (version 4)",
    **BBH,
)
def test_bbh(example: Row, fewshot: FewShot) -> Scores:
    """BIG-Bench Hard (Suzgun et al. 2022), 27 tasks (6511 questions), the authors' 3 examples with chains of thought,
    greedy, 1024 new tokens.

    Prompt: the task's description, an empty line, three times "Q: ", a question, a line break, "A: Let's think step by
    step.", a line break and a chain of thought that ends with "So the answer is ..."; then the question. The text ends
    before "</s>", "Q" or an empty line.

    - ``exact_match`` (primary): what follows the first "the answer is ", up to the last character of that line, is the
      target, letter by letter; over all questions. Tasks are groups.

    As in the reference, an answer without its full stop loses its last character, and "The answer is" with a capital
    letter is none. Every capital Q ends the text, so that 7 questions of reasoning_about_colored_objects cannot be won.
    Two questions of causal_judgement occur with both answers. The paper's averages are over 23 tasks: the three of
    logical_deduction and the three of tracking_shuffled_objects count as one each.

    Not comparable: answers without a chain of thought; choices by log-likelihood (leaderboard_bbh, 24 tasks).
    """
    header = f"{DESCRIPTIONS[example['file']]}\n\n"
    stop = ("</s>", "Q", "\n\n")
    answer = yield fewshot.generate(prompt(example), header=header, stop=stop, max_new_tokens=1024)
    found = answer_of(answer.text)
    scores = {"exact_match": float(found == example["target"])}
    return Graded(scores, found is None, {"answer": found}, example["target"])


@benchmark(
    "bbh_zeroshot",
    data=Dataset(*HUB, local="bbh"),
    primary="exact_match_flexible",
    metrics=("exact_match_flexible", "exact_match_strict"),
    source="lm-evaluation-harness 0.4.13, tasks bbh_zeroshot_TASK (version 3)",
    **BBH,
)
def test_bbh_zeroshot(example: Row, fewshot: FewShot) -> Scores:
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
    header = f"{DESCRIPTIONS[example['file']]}\n\n"
    stop = ("</s>", "Q:", "<|im_end|>")
    asked, target = example["input"], example["target"]
    answer = yield fewshot.generate(f"Q: {asked}\nA:", header=header, stop=stop, max_new_tokens=256)
    found = flexible_answer(example["file"], asked, answer.text)
    strict, flexible = same(answer.text, target), found is not None and same(found, target)
    scores = {"exact_match_flexible": float(flexible), "exact_match_strict": float(strict)}
    return Graded(scores, found is None, {"flexible": found}, target)
