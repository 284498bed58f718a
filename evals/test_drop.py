"""DROP: questions about a passage that need counting, adding or comparing."""

from __future__ import annotations

from dataclasses import replace

from pytest_touchstone import (
    Dataset,
    FewShot,
    Generate,
    Published,
    Scores,
    Shot,
    Shots,
    Solution,
    benchmark,
)
from pytest_touchstone.metrics.drop import DropRow, drop_row, grade_drop, listed_spans


def prompt(row: DropRow) -> str:
    """Passage and question."""
    return f"{row['passage']} {row['question']}"


def shot(row: DropRow) -> Shot:
    """Passage and question with the first answer, no space before it, as the reference writes it."""
    return Shot(prompt(row), ",".join(row["answers"][0]), between="")


@benchmark(
    "drop",
    version=1,
    data=Dataset("EleutherAI/drop", split="validation"),
    published=Published(
        9536,
        paper="Dua et al. 2019, arXiv 1903.00161",
        source="AllenNLP's drop_eval; lm-evaluation-harness 0.4.13, task drop (version 3)",
    ),
    row=DropRow,
    prepare=drop_row,
    asks=Generate,
    primary="f1",
    metrics=("f1", "em", "f1_list", "em_list"),
    shots=Shots(shot=shot),
    cluster="passage_sha256",
    solution=Solution(lambda row: ",".join(row["answers"][0])),
)
def test_drop(example: DropRow, fewshot: FewShot) -> Scores:
    """DROP (Dua et al. 2019), validation split (9536 questions in the paper and in
    lm-evaluation-harness's copy), 0-shot, greedy, 256 new tokens.

    Prompt: the passage, a space, the question. The text ends before the first full stop, as in the reference,
    which cuts decimals.

    - ``f1`` (primary): the whole text as one span against every gold answer, of which the best counts. Words are sets
      after the evaluator's normalisation; spans are paired for the highest sum; a missed gold number scores 0.
    - ``em``: the same spans, exactly.
    - ``f1_list``, ``em_list``: the text split into spans at line breaks, semicolons, commas and "and". This
      reading is ours: as one string an answer of several spans can never be right.

    Questions about one passage are not independent; the intervals allow for that. Not comparable: other
    harnesses compare substrings, let answers run on, or score exact match only.
    """
    answer = yield fewshot.generate(prompt(example), stop=(".",), max_new_tokens=256)
    one = grade_drop(example["answers"], answer.text)
    several = grade_drop(example["answers"], listed_spans(answer.text))
    by_list = {f"{name}_list": score for name, score in several.scores.items()}
    return replace(one, scores={**one.scores, **by_list})
