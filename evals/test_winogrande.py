"""WinoGrande: which of two names or things does the blank in a sentence stand for?"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, ChoiceScores, collect_choices, with_bits


class WinograndeRow(TypedDict):
    """A sentence with one "_" and what could stand there."""

    sentence: str
    option1: str
    option2: str
    answer: Literal["1", "2"]


def around_blank(row: WinograndeRow) -> tuple[str, str]:
    """Return the text before the first blank as it stands, and the text after it, stripped."""
    blank = row["sentence"].index("_")
    return row["sentence"][:blank], row["sentence"][blank + 1 :].strip()


def filled(row: WinograndeRow) -> str:
    """Return the sentence with the right option in place of the blank."""
    before, after = around_blank(row)
    return before + (row["option1"] if row["answer"] == "1" else row["option2"]) + " " + after


@benchmark(
    "winogrande",
    version=1,
    data=Dataset(
        "allenai/winogrande", "winogrande_xl", split="validation", fewshot="train", local="winogrande/dev"
    ),
    published=Published(
        1267,
        paper="Sakaguchi et al. 2019, arXiv 1907.10641; partial scoring: Trinh and Le 2018, arXiv 1806.02847",
        source="lm-evaluation-harness 0.4.13, task winogrande",
    ),
    row=WinograndeRow,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc", BITS_PER_BYTE),
    shots=Shots(shot=filled, lm_eval=LmEval(40_398, drops_own=True)),
)
def test_winogrande(example: WinograndeRow, fewshot: FewShot) -> Scores:
    """WinoGrande (Sakaguchi et al. 2019), partial scoring, validation split (the 1267 rows
    of the authors' dev.jsonl), 0-shot (5-shot on leaderboards).

    The sentence is cut at "_". Context i: the text before it and option i. Continuation: one space and the
    stripped text after it, the same for both.

    - ``acc`` (primary): the context under which that text has the higher log-probability is the right one;
      option 1 on a tie. Both continuations are the same text, so nothing is divided by its length.
    - ``bits_per_byte``: bits per UTF-8 byte of that text after the right option; lower is better.

    Not comparable: scoring the option together with the rest after the text before it (lighteval) is another
    quantity and gives 2 to 5 points less. Few-shot examples are the filled sentences, with one space where the blank
    ended even before a comma or an apostrophe, as the reference writes them. They come from the training split, or
    without that file from the evaluation rows.
    """
    before, after = around_blank(example)
    options = (example["option1"], example["option2"])
    answers = yield [fewshot.loglikelihood(before + option, " " + after) for option in options]
    gold, choices = int(example["answer"]) - 1, collect_choices(answers, (after, after))
    scores = ChoiceScores({"acc": float(choices.preferred("acc") == gold)}, gold, choices=choices)
    return with_bits(scores, answers, choices.texts)
