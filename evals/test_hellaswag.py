"""HellaSwag: which of four endings continues a description of an activity?"""

from __future__ import annotations

import re
from typing import NotRequired

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, CHOICE_METRICS, ask_answers


class HellaswagRow(TypedDict):
    """A description in two parts and its endings; ``label`` may be written as text ("3")."""

    activity_label: str
    ctx_a: str
    ctx_b: str
    endings: list[str]
    label: int
    source_id: NotRequired[str]


def without_marks(text: str) -> str:
    """Return the text without the marks that WikiHow's articles left in it."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def hellaswag_query(scene: HellaswagRow) -> str:
    """Activity, colon, both parts; only the first letter of the second part is a capital."""
    return without_marks(f"{scene['activity_label']}: {scene['ctx_a']} {scene['ctx_b'].capitalize()}")


def hellaswag_shot(scene: HellaswagRow) -> str:
    """Return the description with its right ending."""
    return f"{hellaswag_query(scene)} {without_marks(scene['endings'][scene['label']])}"


@benchmark(
    "hellaswag",
    version=1,
    data=Dataset("Rowan/hellaswag", split="validation", fewshot="train"),
    published=Published(
        10_042,
        paper="Zellers et al. 2019, arXiv 1905.07830",
        source="lm-evaluation-harness 0.4.13, task hellaswag",
    ),
    row=HellaswagRow,
    asks=Loglikelihood,
    primary="acc_norm",
    metrics=(*CHOICE_METRICS, BITS_PER_BYTE),
    shots=Shots(shot=hellaswag_shot, lm_eval=LmEval(39_905, drops_own=True)),
    cluster="source_id",
)
def test_hellaswag(example: HellaswagRow, fewshot: FewShot) -> Scores:
    """HellaSwag (Zellers et al. 2019), validation split (10,042 rows in the authors' file), 0-shot
    (10-shot in the first Open LLM Leaderboard).

    Query: activity label, ": ", ``ctx_a``, " ", ``ctx_b`` with a capital first letter and the rest in lower
    case. Query and endings are cleaned: strip; " [title]" becomes ". "; every "[...]" within a line is
    deleted; two spaces become one, in one pass. Continuation: one space and the ending, for each of the four.

    - ``acc_norm`` (primary): highest log-probability per character of the cleaned ending.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: the same with the plain sum, per UTF-8 byte, per token.
    - ``bits_per_byte``: bits per UTF-8 byte of the right ending, by which small models are compared; lower is better.

    Intervals count endings to the same video or article (``source_id``) as one cluster. Not comparable:
    OLMo's cleaning leaves no double full stop before a title; harnesses that show the endings and ask for a
    letter measure something else. Few-shot examples come from the training split; without that file, from the
    evaluation rows.
    """
    endings = [without_marks(ending) for ending in example["endings"]]
    return (yield from ask_answers(fewshot, hellaswag_query(example), endings, example["label"]))
