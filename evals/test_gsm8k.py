"""GSM8K: grade school mathematics in words, answered with a rationale and a number."""

from __future__ import annotations

from collections.abc import Generator

from typing_extensions import TypedDict

from harness.core.benchmark import HubData, benchmark
from harness.core.few_shot import Shot
from harness.core.requests import Generate, GenerateAnswer, Turn
from harness.metrics.gsm8k import grade_gsm8k


class Row(TypedDict):
    """A question and its rationale, which ends with ``#### number``."""

    question: str
    answer: str


STOP = ("Question:", "</s>", "<|im_end|>")


def prompt(row: Row) -> str:
    """The question."""
    return f"Question: {row['question']}\nAnswer:"


def shot(row: Row) -> Shot:
    """The question with its whole rationale, calculator marks included."""
    return Shot(prompt(row), row["answer"])


@benchmark(
    name="gsm8k",
    version=1,
    data="gsm8k/test",
    published_rows=1319,
    row=Row,
    asks=Generate,
    primary="exact_match_flexible",
    metrics=("exact_match_flexible", "exact_match_strict", "exact_match_number"),
    num_fewshot=5,
    shots_from="gsm8k/train",
    shot=shot,
    hub=HubData("openai/gsm8k", "test", "main"),
    hub_shots=HubData("openai/gsm8k", "train", "main"),
    source="Cobbe et al. 2021, arXiv 2110.14168; lm-evaluation-harness 0.4.13, task gsm8k (version 3)",
)
def test_gsm8k(
    example: Row, shots: str, turns: tuple[Turn, ...]
) -> Generator[Generate, GenerateAnswer, dict[str, float]]:
    """GSM8K (Cobbe et al. 2021), test split (1319 rows in the authors' test.jsonl), 5-shot, greedy, 256
    new tokens.

    Prompt: "Question: ", the question, a line break, "Answer:"; in the examples a space and the published
    rationale follow. The text ends before "Question:", "</s>" or "<|im_end|>".

    - ``exact_match_flexible`` (primary): the last thing like a number in the text is the gold number, as text,
      after deleting commas, dollar signs and one full stop at the end.
    - ``exact_match_strict``: the same for the first "#### number".
    - ``exact_match_number``: the strict number, else the last one, has the gold number's value: 18.00 is 18.

    Not comparable: the authors' own score is a strict one; eight-shot chain-of-thought prompts, other stops,
    and comparison as floating-point numbers give other numbers. The examples are drawn with our seed, so they
    are not the ones that another harness draws.
    """
    asked = prompt(example)
    answer = yield Generate(shots + asked, stop=STOP, max_new_tokens=256, turns=(*turns, Turn("user", asked)))
    grade = grade_gsm8k(example["answer"], answer.samples[0].text)
    return {**grade.scores(), "no_answer": float(not grade.parsed)}
