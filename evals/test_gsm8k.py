"""GSM8K: grade school mathematics in words, answered with a rationale and a number."""

from __future__ import annotations

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, Generate, LmEval, Published, Scores, Shot, Shots, benchmark
from pytest_touchstone.metrics.gsm8k import GSM8K_SOLUTION, grade_gsm8k


class Row(TypedDict):
    """A question and its rationale, which ends with ``#### number``."""

    question: str
    answer: str


def prompt(row: Row) -> str:
    """Return the question."""
    return f"Question: {row['question']}\nAnswer:"


@benchmark(
    "gsm8k",
    version=2,
    data=Dataset("openai/gsm8k", "main", split="test", fewshot="train"),
    published=Published(
        1319,
        paper="Cobbe et al. 2021, arXiv 2110.14168",
        source="lm-evaluation-harness 0.4.13, task gsm8k (version 3)",
    ),
    row=Row,
    asks=Generate,
    primary="exact_match_flexible",
    metrics=("exact_match_flexible", "exact_match_strict", "exact_match_number"),
    tags=("mathematics",),
    # the whole rationale, calculator marks included
    shots=Shots(5, lambda row: Shot(prompt(row), row["answer"]), lm_eval=LmEval(7473)),
    solution=GSM8K_SOLUTION,
)
def test_gsm8k(example: Row, fewshot: FewShot) -> Scores:
    """GSM8K (Cobbe et al. 2021), test split (1319 rows in the authors' test.jsonl), 5-shot, greedy, 256
    new tokens.

    Prompt: "Question: ", the question, a line break, "Answer:"; in the examples a space and the published
    rationale follow. The text ends before "Question:", "</s>" or "<|im_end|>".

    - ``exact_match_flexible`` (primary): the last number-like string in the text is the gold number, as text, after
      deleting commas, dollar signs and one full stop at the end.
    - ``exact_match_strict``: the same for the first "#### number".
    - ``exact_match_number``, our own rule: the number in the last box, else after "####", else the last one, has the
      gold number's value: 18.00 is 18, and so is 36/2. It also takes off the ``<answer>`` and ``<response>`` that some
      families put around an answer; the two other rules are lm-evaluation-harness's, which do not.

    Not comparable: the authors' own score is a strict one; eight-shot chain-of-thought prompts, other stops,
    and comparison as floating-point numbers give other numbers. The examples are drawn with our seed;
    ``--eval-set fewshot=lm-eval`` draws lm-evaluation-harness's.
    """
    stop = ("Question:", "</s>", "<|im_end|>")
    answer = yield fewshot.generate(prompt(example), stop=stop, max_new_tokens=256)
    return grade_gsm8k(example["answer"], answer.text)
