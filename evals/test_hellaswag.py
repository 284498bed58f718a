"""HellaSwag: which of four endings continues a description of an activity?"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import NotRequired

from typing_extensions import TypedDict

from harness.core.benchmark import HubData, benchmark
from harness.core.requests import Loglikelihood, LoglikelihoodAnswer
from harness.metrics import CHOICE_METRICS, choice_scores


class Scene(TypedDict):
    """A description in two parts and its endings; ``label`` may be written as text ("3")."""

    activity_label: str
    ctx_a: str
    ctx_b: str
    endings: list[str]
    label: int
    source_id: NotRequired[str]


def clean(text: str) -> str:
    """The text without the marks that WikiHow's articles left in it."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def query(scene: Scene) -> str:
    """Activity, colon, both parts; only the first letter of the second part is a capital."""
    return clean(f"{scene['activity_label']}: {scene['ctx_a']} {scene['ctx_b'].capitalize()}")


def shot(scene: Scene) -> str:
    """The description with its right ending."""
    return f"{query(scene)} {clean(scene['endings'][scene['label']])}"


@benchmark(
    name="hellaswag",
    version=1,
    data="hellaswag/validation",
    published_rows=10_042,
    row=Scene,
    asks=Loglikelihood,
    primary="acc_norm",
    metrics=CHOICE_METRICS,
    shots_from="hellaswag/train",
    shot=shot,
    cluster="source_id",
    hub=HubData("Rowan/hellaswag", "validation"),
    hub_shots=HubData("Rowan/hellaswag", "train"),
    source="Zellers et al. 2019, arXiv 1905.07830; lm-evaluation-harness 0.4.13, task hellaswag",
)
def test_hellaswag(
    example: Scene, shots: str
) -> Generator[list[Loglikelihood], list[LoglikelihoodAnswer], dict[str, float]]:
    """HellaSwag (Zellers et al. 2019), validation split (10,042 rows in the authors' file), 0-shot
    (10-shot in the first Open LLM Leaderboard).

    Query: activity label, ": ", ``ctx_a``, " ", ``ctx_b`` with a capital first letter and the rest in lower
    case. Query and endings are cleaned: strip; " [title]" becomes ". "; every "[...]" within a line is
    deleted; two spaces become one, in one pass. Continuation: one space and the ending, for each of the four.

    - ``acc_norm`` (primary): highest log-probability per character of the cleaned ending.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: the same with the plain sum, per UTF-8 byte, per token.

    Intervals count endings to the same video or article (``source_id``) as one cluster. Not comparable:
    OLMo's cleaning leaves no double full stop before a title; harnesses that show the endings and ask for a
    letter measure something else. Few-shot examples come from the training split; without that file, from the
    evaluation rows.
    """
    endings = [clean(ending) for ending in example["endings"]]
    context = shots + query(example)
    answers = yield [Loglikelihood(context, " " + ending) for ending in endings]
    return choice_scores([a.logprob for a in answers], endings, [a.tokens for a in answers], example["label"])
