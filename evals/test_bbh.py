"""BIG-Bench Hard: 27 tasks of reasoning, answered after a chain of thought."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Graded, Published, Scores, Shot, Shots, benchmark
from pytest_touchstone.metrics.bbh import BBH, BBH_HUB, BBH_PAPER, ROWS, BbhRow, answer_of, bbh_header


def prompt(row: BbhRow) -> str:
    """Return the question, and the beginning of a chain of thought."""
    return f"Q: {row['input']}\nA: Let's think step by step.\n"


@benchmark(
    "bbh",
    data=Dataset(*BBH_HUB, local="bbh", fewshot=Dataset(local="bbh/shots")),
    primary="exact_match",
    metrics=("exact_match",),
    shots=Shots(3, lambda row: Shot(prompt(row), row["target"], between=""), pick="first", fixed=True),
    published=Published(
        ROWS, paper=BBH_PAPER, source="lm-evaluation-harness 0.4.13, tasks bbh_cot_fewshot_TASK (version 4)"
    ),
    **BBH,
)
def test_bbh(example: BbhRow, fewshot: FewShot) -> Scores:
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
    header, stop = bbh_header(example), ("</s>", "Q", "\n\n")
    answer = yield fewshot.generate(prompt(example), header=header, stop=stop, max_new_tokens=1024)
    found = answer_of(answer.text)
    scores = {"exact_match": float(found == example["target"])}
    return Graded(scores, found is None, {"answer": found}, example["target"])
