"""KoBEST's rows as choices: a context, the texts that may follow it, and the number of the right one.

Rows come as the authors publish them (TSV, with names such as ``Text``) or as on the Hub. All five tasks are told by
lm-evaluation-harness's words (0.4.13, tasks/kobest); cells keep the white space around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset, LmEval, Published, Shots
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Loglikelihood, PseudoLoglikelihood
from pytest_touchstone.metrics.macro_f1 import MACRO_F1
from pytest_touchstone.metrics.multiple_choice import CHOICE_METRICS, ask_choices, score_choices


class KobestRow(TypedDict):
    """A context, the choices that may follow it, and the number of the right one."""

    context: str
    choices: list[str]
    label: int


_TRUTH: Final = {"True": 1, "TRUE": 1, "False": 0, "FALSE": 0}
"""The answers of the authors' files; the Hub has numbers."""

_CONNECTORS: Final = {"원인": " 왜냐하면", "결과": " 그래서"}
_NO_YES: Final = ["아니오", "예"]


def _boolq(row: dict[str, Any]) -> KobestRow:
    paragraph, question = row.get("paragraph", row.get("Text")), row.get("question", row.get("Question"))
    label = row["label"] if "label" in row else _TRUTH[row["Answer"].strip()]
    return {"context": f"{paragraph} 질문: {question} 답변: ", "choices": _NO_YES, "label": label}


def _copa(row: dict[str, Any]) -> KobestRow:
    context = f"{row.get('premise', row.get('sentence'))} {_CONNECTORS[row['question'].strip()]}"
    if "label" in row:
        choices = [row["alternative_1"], row["alternative_2"]]
        return {"context": context, "choices": choices, "label": row["label"]}
    return {"context": context, "choices": [row["1"], row["2"]], "label": int(row["Answer"]) - 1}


def _hellaswag(row: dict[str, Any]) -> KobestRow:
    name = "ending_" if "ending_1" in row else "choice"
    choices = [row[f"{name}{n}"] for n in range(1, 5)]
    return {"context": f"문장: {row['context']}", "choices": choices, "label": int(row["label"])}


def _sentineg(row: dict[str, Any]) -> KobestRow:
    text, label = row.get("sentence", row.get("Text")), row["label" if "label" in row else "Label"]
    return {"context": f"문장: {text} 긍부정:", "choices": ["부정", "긍정"], "label": int(label)}


def _wic(row: dict[str, Any]) -> KobestRow:
    word = row.get("word", row.get("Target"))
    one, two = row.get("context_1", row.get("SENTENCE1")), row.get("context_2", row.get("SENTENCE2"))
    context = f"문장1: {one} 문장2: {two} 두 문장에서 {word}가 같은 뜻으로 쓰였나?"
    label = row["label"] if "label" in row else _TRUTH[row["ANSWER"].strip()]
    return {"context": context, "choices": _NO_YES, "label": label}


_TASKS: Final[dict[str, tuple[Callable[[dict[str, Any]], KobestRow], int, int]]] = {
    "boolq": (_boolq, 1404, 3665),
    "copa": (_copa, 1000, 3076),
    "hellaswag": (_hellaswag, 500, 2029),
    "sentineg": (_sentineg, 397, 3649),
    "wic": (_wic, 1260, 3318),
}
"""The form of each task's rows, and their number in the test and training splits."""


def kobest_rows(name: str, source: str) -> dict[str, Any]:
    """The part of a declaration about the rows of one of the five tasks."""
    prepare, rows, _ = _TASKS[name]
    return {
        "version": 1,
        "data": Dataset("skt/kobest_v1", name, fewshot="train", local=f"kobest/{name}/test"),
        "published": Published(rows, paper="Kim et al. 2022, arXiv 2204.04541", source=source),
        "row": KobestRow,
        "prepare": prepare,
        "tags": ("korean",),
    }


def kobest_task(name: str) -> dict[str, Any]:
    """The declaration of one of the five tasks as causal models are asked it."""
    return {
        **kobest_rows(name, f"lm-evaluation-harness 0.4.13, task kobest_{name}"),
        "asks": Loglikelihood,
        "aggregate": {"f1": MACRO_F1},
        "shots": Shots(
            shot=lambda row: f"{row['context']} {row['choices'][row['label']]}",
            lm_eval=LmEval(_TASKS[name][2]),
        ),
    }


def kobest_choice(row: KobestRow, fewshot: FewShot) -> Scores:
    """Ask for all choices; the chosen one has the highest sum."""
    return (yield from ask_choices(fewshot, row["context"], row["choices"], row["label"]))


def kobest_masked(name: str) -> dict[str, Any]:
    """The declaration of one of the five tasks as masked models are asked it."""
    return {
        **kobest_rows(
            name, "Salazar et al. 2020, arXiv 1910.14659 (the score); the texts are those of the causal form"
        ),
        "asks": PseudoLoglikelihood,
        "primary": "acc",
        "metrics": CHOICE_METRICS,
    }


def kobest_text(row: KobestRow) -> Scores:
    """Ask how likely the context is with each choice."""
    texts = [f"{row['context']} {choice}" for choice in row["choices"]]
    answers = yield [PseudoLoglikelihood(text) for text in texts]
    return score_choices(answers, texts, row["label"])
