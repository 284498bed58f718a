"""The rules of IFEval's 25 kinds of instruction: ``follows(kind, values, text)`` for a text that is not blank.

``values`` are those of the row's ``kwargs``: counts, with "at least" or "less than" where the kind has a relation,
keywords, phrases. Keys that are null do not count. Keywords are regular expressions, as in the authors' program; none
of the published ones has a special sign. One rule differs from theirs: where the letter of ``letter_frequency`` is no
letter (keys 1122 and 1129: "#", "!"), theirs counts a letter drawn at random, anew each time, and ours the sign.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.metrics.ifeval.language import language, sentences, words

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
