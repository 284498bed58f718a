"""IFEval: instructions whose observance a program can verify."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, Generate, Published, Scores, benchmark
from pytest_touchstone.metrics.ifeval import IFEVAL_METRICS, IFEVAL_POOLED, grade_ifeval


class Row(TypedDict):
    """A prompt, the kinds of its instructions, and the values of each; on the Hub null where there is none."""

    key: int
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[dict[str, Any]]


@benchmark(
    "ifeval",
    version=1,
    data=Dataset("google/IFEval", split="train", local="ifeval/input_data"),
    published=Published(
        541,
        paper="Zhou et al. 2023, arXiv 2311.07911",
        source="the authors' instruction_following_eval; lm-evaluation-harness 0.4.13, task ifeval (version 4)",
    ),
    row=Row,
    asks=Generate,
    primary="prompt_level_strict_acc",
    metrics=IFEVAL_METRICS,
    aggregate=IFEVAL_POOLED,
    needs=dict.fromkeys(("langdetect", "nltk", "punkt"), "pip install 'pytest-touchstone[ifeval]'"),
)
def test_ifeval(example: Row, fewshot: FewShot) -> Scores:
    """IFEval (Zhou et al. 2023), 541 prompts with 834 instructions of 25 kinds, 0-shot, greedy, 1280 new tokens.

    Prompt: the row's, alone; through a chat template it is a turn of the user. The text ends by itself or at the limit.

    - ``prompt_level_strict_acc`` (primary): the text follows all of its prompt's instructions.
    - ``inst_level_strict_acc``: the share of all instructions that are followed, pooled over the prompts. Its interval
      takes those of one prompt together.
    - ``prompt_level_loose_acc``, ``inst_level_loose_acc``: an instruction counts as followed if it is in any of eight
      texts: the text, without its first line, its last, both, and each of these without asterisks.

    The rules are in ``pytest_touchstone.metrics.ifeval``. An empty text follows nothing. Languages are
    those that langdetect finds, seeded, so that a text always has the same; the reference draws anew. Prompts 1122 and
    1129 ask for a "letter" that is none ("#", "!"): the reference counts a letter drawn at random, ours that sign.

    Not comparable: the mean of the four, or of two, which some cards quote; texts with a reasoning in front; other
    limits of tokens. A chat template is used unless ``--eval-chat off`` is given; lm-evaluation-harness uses one only
    if it is told to.
    """
    answer = yield fewshot.generate(example["prompt"], max_new_tokens=1280)
    return grade_ifeval(example["instruction_id_list"], example["kwargs"], answer.text)
