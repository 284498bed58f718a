"""KoBEST: five Korean tasks made by linguists, as choices among two or four texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, LmEval, Loglikelihood, Scores, benchmark
from harness.metrics import CHOICE_METRICS, MACRO_F1, ChoiceScores, argmax, score_choices


class Row(TypedDict):
    """A context, the choices that may follow it, and the number of the right one."""

    context: str
    choices: list[str]
    label: int


TRUTH = {"True": 1, "TRUE": 1, "False": 0, "FALSE": 0}
"""The answers of the authors' files; the Hub has numbers."""

CONNECTORS = {"원인": " 왜냐하면", "결과": " 그래서"}
NO_YES = ["아니오", "예"]


def boolq(row: dict[str, Any]) -> Row:
    """A paragraph and a question."""
    paragraph, question = row.get("paragraph", row.get("Text")), row.get("question", row.get("Question"))
    label = row["label"] if "label" in row else TRUTH[row["Answer"].strip()]
    return {"context": f"{paragraph} 질문: {question} 답변: ", "choices": NO_YES, "label": label}


def copa(row: dict[str, Any]) -> Row:
    """A sentence and its cause or effect."""
    context = f"{row.get('premise', row.get('sentence'))} {CONNECTORS[row['question'].strip()]}"
    if "label" in row:
        choices = [row["alternative_1"], row["alternative_2"]]
        return {"context": context, "choices": choices, "label": row["label"]}
    return {"context": context, "choices": [row["1"], row["2"]], "label": int(row["Answer"]) - 1}


def hellaswag(row: dict[str, Any]) -> Row:
    """A scene and its endings."""
    name = "ending_" if "ending_1" in row else "choice"
    choices = [row[f"{name}{n}"] for n in range(1, 5)]
    return {"context": f"문장: {row['context']}", "choices": choices, "label": int(row["label"])}


def sentineg(row: dict[str, Any]) -> Row:
    """A review and its sentiment."""
    text, label = row.get("sentence", row.get("Text")), row["label" if "label" in row else "Label"]
    return {"context": f"문장: {text} 긍부정:", "choices": ["부정", "긍정"], "label": int(label)}


def wic(row: dict[str, Any]) -> Row:
    """Two sentences with one word, in one sense or in two."""
    word = row.get("word", row.get("Target"))
    one, two = row.get("context_1", row.get("SENTENCE1")), row.get("context_2", row.get("SENTENCE2"))
    context = f"문장1: {one} 문장2: {two} 두 문장에서 {word}가 같은 뜻으로 쓰였나?"
    label = row["label"] if "label" in row else TRUTH[row["ANSWER"].strip()]
    return {"context": context, "choices": NO_YES, "label": label}


def task(name: str, prepare: Callable[[dict[str, Any]], Row], rows: int, train: int) -> dict[str, Any]:
    """The declaration of one of the five: the form of its rows, and their number in the test and training splits."""
    return {
        "version": 1,
        "data": Dataset("skt/kobest_v1", name, fewshot="train", local=f"kobest/{name}/test"),
        "published_rows": rows,
        "row": Row,
        "prepare": prepare,
        "asks": Loglikelihood,
        "aggregate": {"f1": MACRO_F1},
        "tags": ("korean",),
        "lm_eval": LmEval(train),
        "shot": lambda row: f"{row['context']} {row['choices'][row['label']]}",
        "paper": "Kim et al. 2022, arXiv 2204.04541",
        "source": f"lm-evaluation-harness 0.4.13, task kobest_{name}",
    }


def score(row: Row, fewshot: FewShot) -> Scores:
    """Ask for both choices; the chosen one has the highest sum."""
    answers = yield [fewshot.loglikelihood(row["context"], " " + choice) for choice in row["choices"]]
    chosen = argmax([one.logprob for one in answers])
    return ChoiceScores({"acc": float(chosen == row["label"])}, row["label"], chosen)


@benchmark("kobest_boolq", **task("boolq", boolq, 1404, 3665), primary="acc", metrics=("acc",))
def test_kobest_boolq(example: Row, fewshot: FewShot) -> Scores:
    """KoBEST BoolQ (Kim et al. 2022), test split (1404 rows), 0-shot.

    Context: the paragraph, " 질문: ", the question, " 답변: ". Continuations: " 아니오", " 예"; the context ends in a
    space already, so two stand before the answer. Cells keep the white space around them.

    - ``acc`` (primary): the choice with the highest log-probability is the right one.
    - ``f1``: macro F1 of the same choices; one answer to all rows gives about 0.33.

    Published KoBEST numbers are often F1, and at 5, 10 or 50 shots. lm-evaluation-harness's group ``kobest`` gives an
    average of F1 values weighted by rows, which is no F1.
    """
    return (yield from score(example, fewshot))


@benchmark("kobest_copa", **task("copa", copa, 1000, 3076), primary="acc", metrics=("acc",))
def test_kobest_copa(example: Row, fewshot: FewShot) -> Scores:
    """KoBEST COPA (Kim et al. 2022), test split (1000 rows), 0-shot.

    Context: the sentence, two spaces, "왜냐하면" (because) or "그래서" (therefore), as the row asks for a cause or an
    effect. Continuations: one space and the alternative, for both. Scores: those of ``kobest_boolq``, no length counts.
    """
    return (yield from score(example, fewshot))


@benchmark(
    "kobest_hellaswag", **task("hellaswag", hellaswag, 500, 2029), primary="acc_norm", metrics=CHOICE_METRICS
)
def test_kobest_hellaswag(example: Row, fewshot: FewShot) -> Scores:
    """KoBEST HellaSwag (Kim et al. 2022), test split (500 rows), 0-shot.

    Context: "문장: " and the scene. Continuations: one space and the ending, for each of the four.

    - ``acc_norm`` (primary): highest log-probability per character of the ending.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: the same with the plain sum, per UTF-8 byte, per token.
    - ``f1``: macro F1 of the endings with the highest plain sum, as in lm-evaluation-harness, not of the normalised
      choice; a paper may print that under this name.
    """
    answers = yield [fewshot.loglikelihood(example["context"], " " + one) for one in example["choices"]]
    found = score_choices(answers, example["choices"], example["label"])
    return ChoiceScores(found, found.right, argmax([one.logprob for one in answers]))


@benchmark("kobest_sentineg", **task("sentineg", sentineg, 397, 3649), primary="acc", metrics=("acc",))
def test_kobest_sentineg(example: Row, fewshot: FewShot) -> Scores:
    """KoBEST SentiNeg (Kim et al. 2022), test split (397 reviews, each the negation of another), 0-shot.

    Context: "문장: ", the review, " 긍부정:". Continuations: " 부정" (negative), " 긍정" (positive). Scores: those of
    ``kobest_boolq``.
    """
    return (yield from score(example, fewshot))


@benchmark("kobest_wic", **task("wic", wic, 1260, 3318), primary="acc", metrics=("acc",))
def test_kobest_wic(example: Row, fewshot: FewShot) -> Scores:
    """KoBEST WiC (Kim et al. 2022), test split (1260 rows), 0-shot.

    Context: "문장1: ", a sentence, " 문장2: ", another, " 두 문장에서 ", the word, "가 같은 뜻으로 쓰였나?".
    The particle is always 가, and the word stands in brackets in both sentences. Continuations: " 아니오", " 예".
    Scores: those of ``kobest_boolq``.
    """
    return (yield from score(example, fewshot))
