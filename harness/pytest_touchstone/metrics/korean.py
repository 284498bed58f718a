"""Korean benchmarks: Real@k and Ko-LAMBADA by masked nouns, and KoBEST's choices.

Real@k is the accuracy of a masked language model at the masked second mention of a noun. The rules, in the order in
which they are applied:

1. The text is clipped to 200 characters on each side of its mask, times max(1, seq_len / 512).
2. The model's 50 most probable tokens at the mask are stripped of their continuation marks. Those that are
   nouns stay, in order of probability: the candidates. A word that the vocabulary holds twice (with and
   without the mark) counts twice.
3. **Lenient** hit at k: among the first k candidates one equals the target, contains it or is contained in
   it. **Strict** hit at k: one of them equals it. No candidate is a miss.

Lenient is what published tables use. Containment lets a one-syllable candidate count for every longer noun
that has the syllable, so the strict score always stands beside it. The **copy baseline** answers, without a
model, the most frequent repeated noun of the visible text; Real@k is to be read against it.

Korean morphemes by Kiwi, loaded when first needed.

A noun is a morpheme that Kiwi tags NNG (common) or NNP (proper). Two different questions are put to it:

``nouns(text)``     The nouns of a running text, where Kiwi sees the context. Only those of two characters
                    or more whose characters stand in the text as they are: Kiwi takes contractions apart
                    (``나란`` is ``나라`` + ``ㄴ``), and a span that covers more than the noun could not be
                    masked without losing a piece.
``is_noun(token)``  Whether a bare token, without context, is a noun: Kiwi analyses the stripped token as
                    **exactly one** morpheme, that morpheme covers the whole token, and its tag is NNG or
                    NNP. ``나라`` is one; ``사람들`` (noun and suffix), ``나라의`` (noun and particle) and
                    ``그`` are none. One syllable is enough, and Kiwi calls many bare syllables nouns
                    (``가``, ``은``).

Tags depend on the version of Kiwi and of its model; the settings are Kiwi's defaults.

KoBEST's rows are choices: a context, the texts that may follow it, and the number of the right one. They come as the
authors publish them (TSV, with names such as ``Text``) or as on the Hub. All five tasks are told by
lm-evaluation-harness's words (0.4.13, tasks/kobest); cells keep the white space around them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset, LmEval, Published, Shots
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import MASK, FillMask, FillMaskAnswer, Loglikelihood, PseudoLoglikelihood
from pytest_touchstone.metrics.macro_f1 import MACRO_F1
from pytest_touchstone.metrics.multiple_choice import CHOICE_METRICS, ask_choices, grade_choices

NOUN_TAGS: Final = frozenset({"NNG", "NNP"})
SHORTEST_NOUN: Final = 2


@dataclass(frozen=True, slots=True)
class Morpheme:
    """A morpheme as Kiwi writes it, its tag, and the span of characters it was found in."""

    form: str
    tag: str
    start: int
    end: int


@functools.cache
def _shared_kiwi() -> Any:
    """Return the Kiwi analyser of this process; it loads in two seconds and keeps no state."""
    from kiwipiepy import Kiwi

    # One worker: the harness is parallel by processes already, and Kiwi would start one thread per core.
    return Kiwi(num_workers=1)


def morphemes(text: str) -> tuple[Morpheme, ...]:
    """Return the morphemes of a text in order."""
    tokens = _shared_kiwi().tokenize(text)
    return tuple(
        Morpheme(str(token.form), str(token.tag), int(token.start), int(token.start) + int(token.len))
        for token in tokens
    )


@functools.lru_cache(maxsize=1024)
def nouns(text: str) -> tuple[Morpheme, ...]:
    """Return the maskable nouns of a text in order (see the module's rule)."""
    return tuple(noun_occurrences(text, morphemes(text)))


@functools.lru_cache(maxsize=65536)
def is_noun(token: str) -> bool:
    """Return whether a bare token is one noun (see the module's rule)."""
    bare = token.strip()
    tokens = morphemes(bare) if bare else ()
    return len(tokens) == 1 and tokens[0].tag in NOUN_TAGS and tokens[0].form == bare


def noun_occurrences(text: str, among: Iterable[Morpheme]) -> Iterator[Morpheme]:
    """Yield the morphemes of ``among`` that are nouns of at least two characters and stand in ``text``."""
    for m in among:
        if m.tag in NOUN_TAGS and len(m.form) >= SHORTEST_NOUN and text[m.start : m.end] == m.form:
            yield m


# Real@k: the accuracy of a masked language model at the masked second mention of a noun; and Ko-LAMBADA by it


CLIP: Final = 200
CLIP_SEQ_LEN: Final = 512
TOP_K: Final = 50

REAL_METRICS: Final = (
    *("real@1", "real@5", "real@1_strict", "real@5_strict"),
    *("reachable", "copy_baseline", "copy_baseline_strict"),
)
"""The names of the scores of ``real_scores``."""


def clip_around_mask(text: str, seq_len: int) -> str:
    """Return the text within 200 * max(1, seq_len / 512) characters (rounded down) of its mask, on each side.

    Raises ``DataError`` unless the text has exactly one mask.
    """
    before, after = _sides(text)
    width = int(CLIP * max(1.0, seq_len / CLIP_SEQ_LEN))
    return before[max(0, len(before) - width) :] + MASK + after[:width]


def visible(text: str) -> str:
    """Return the text with a space in place of its mask, so that its neighbours stay apart."""
    before, after = _sides(text)
    return f"{before} {after}"


def noun_candidates(tokens: Iterable[str], is_noun: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the plain tokens that are nouns, most probable first as they came."""
    stripped = (token.strip() for token in tokens)
    return tuple(token for token in stripped if token and is_noun(token))


def is_lenient_hit(target: str, candidate: str) -> bool:
    """Return whether one of the two contains the other; false for an empty candidate."""
    return bool(candidate) and (candidate in target or target in candidate)


def lenient_at(k: int, target: str, candidates: Sequence[str]) -> float:
    """1 if one of the first ``k`` candidates is a lenient hit, else 0."""
    return float(any(is_lenient_hit(target, candidate) for candidate in candidates[:k]))


def strict_at(k: int, target: str, candidates: Sequence[str]) -> float:
    """1 if one of the first ``k`` candidates is the target itself, else 0."""
    return float(target in candidates[:k])


def hits(name: str, target: str, candidates: Sequence[str], ks: Iterable[int]) -> dict[str, float]:
    """Return ``NAME@K`` (lenient) and ``NAME@K_strict`` for each k."""
    scores: dict[str, float] = {}
    for k in ks:
        scores[f"{name}@{k}"] = lenient_at(k, target, candidates)
        scores[f"{name}@{k}_strict"] = strict_at(k, target, candidates)
    return scores


def copied_noun(nouns: Sequence[str]) -> tuple[str, ...]:
    """Return the copy baseline's answer: the most frequent noun that occurs at least twice.

    ``nouns`` are those of the visible text, in its order; of equally frequent ones the first is taken.
    """
    repeated = [(noun, times) for noun, times in Counter(nouns).most_common(1) if times >= 2]
    return tuple(noun for noun, _ in repeated)


def copy_baseline(target: str, nouns: Sequence[str]) -> dict[str, float]:
    """Return ``copy_baseline`` (lenient) and ``copy_baseline_strict`` of one item."""
    answer = copied_noun(nouns)
    return {
        "copy_baseline": lenient_at(1, target, answer),
        "copy_baseline_strict": strict_at(1, target, answer),
    }


def real_scores(
    target: str, answer: FillMaskAnswer, is_noun: Callable[[str], bool], shown: Sequence[str]
) -> dict[str, float]:
    """Return Real@1 and Real@5 of one item, whether it can be reached, and the copy baseline.

    ``shown`` are the nouns of the visible text.
    """
    candidates = noun_candidates((candidate.text for candidate in answer.candidates), is_noun)
    reachable = {"reachable": float(bool(answer.reachable))}
    return {**hits("real", target, candidates, (1, 5)), **reachable, **copy_baseline(target, shown)}


def mask_target(text: str, target: str) -> str:
    """Ko-LAMBADA's rule: the text with its target masked.

    If the text, less white space at its end, ends with the target, the end is masked; else the first
    occurrence; else a mask is appended after a space. A text that has a mask already is left as it is.
    """
    if MASK in text:
        return text
    trimmed = text.rstrip()
    if target and trimmed.endswith(target):
        return trimmed[: -len(target)] + MASK
    if target and target in text:
        return text.replace(target, MASK, 1)
    return f"{trimmed} {MASK}"


def _sides(text: str) -> tuple[str, str]:
    if (masks := text.count(MASK)) != 1:
        raise DataError(f"a text with {masks} masks, but exactly one {MASK} is wanted: {text[:60]!r}")
    before, _, after = text.partition(MASK)
    return before, after


# Ko-LAMBADA


class KoLambadaRow(TypedDict):
    """A text with the noun ``target`` in it."""

    text: str
    target: str


def ko_lambada_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with ``text`` and ``target``, which some copies call ``context`` and ``answer``."""
    text, target = row.get("text") or row.get("context"), row.get("target") or row.get("answer")
    named = {"text": text, "target": target}
    return {**row, **{name: value for name, value in named.items() if value is not None}}


def ask_noun(example: KoLambadaRow, seq_len: int) -> Scores:
    """Mask the target, ask for it, and score the first noun of the answer."""
    text = clip_around_mask(mask_target(example["text"], example["target"]), seq_len)
    answer = yield FillMask(text, top_k=TOP_K, target=example["target"])
    candidates = noun_candidates((c.text for c in answer.candidates), is_noun)
    scores = hits("lambada", example["target"], candidates, (1,))
    return {**scores, "reachable": float(bool(answer.reachable))}


KO_LAMBADA: Final[dict[str, Any]] = {
    "version": 1,
    "row": KoLambadaRow,
    "prepare": ko_lambada_row,
    "asks": FillMask,
    "primary": "lambada@1",
    "metrics": ("lambada@1", "lambada@1_strict", "reachable"),
    "tags": ("korean",),
    "needs": {"kiwipiepy": "pip install 'pytest-touchstone[korean]'"},
}


# KoBEST


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
    first, second = row.get("context_1", row.get("SENTENCE1")), row.get("context_2", row.get("SENTENCE2"))
    context = f"문장1: {first} 문장2: {second} 두 문장에서 {word}가 같은 뜻으로 쓰였나?"
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
    """Return the part of a declaration about the rows of one of the five tasks."""
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
    """Return the declaration of one of the five tasks as causal models are asked it."""
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
    """Return the declaration of one of the five tasks as masked models are asked it."""
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
    return grade_choices(answers, texts, row["label"])
