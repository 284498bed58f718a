"""BIG-Bench Hard: the subjects of its 27 tasks, and answers with and without a chain of thought.

Without examples a model writes freely, and each task's form of an answer is looked for, as lm-evaluation-harness 0.4.13
does (tasks bbh_zeroshot_TASK, filter flexible-extract). One rule is narrower here: of numbers in words only those below
a hundred are read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from string import ascii_uppercase
from typing import Any, Final, TypeAlias

from typing_extensions import TypedDict

from pytest_touchstone.core.requests import Generate

DESCRIPTIONS: Final = {
    "boolean_expressions": "Evaluate the result of a random Boolean expression.",
    "causal_judgement": "Answer questions about causal attribution.",
    "date_understanding": "Infer the date from context.",
    "disambiguation_qa": "Clarify the meaning of sentences with ambiguous pronouns.",
    "dyck_languages": "Correctly close a Dyck-n word.",
    "formal_fallacies": "Distinguish deductively valid arguments from formal fallacies.",
    "geometric_shapes": "Name geometric shapes from their SVG paths.",
    "hyperbaton": "Order adjectives correctly in English sentences.",
    **dict.fromkeys(
        (f"logical_deduction_{count}_objects" for count in ("five", "seven", "three")),
        "A logical deduction task which requires deducing the order of a sequence of objects.",
    ),
    "movie_recommendation": "Recommend movies similar to the given list of movies.",
    "multistep_arithmetic_two": "Solve multi-step arithmetic problems.",
    "navigate": "Given a series of navigation instructions, determine whether one would end up back at the starting "
    "point.",
    "object_counting": "Questions that involve enumerating objects and asking the model to count them.",
    "penguins_in_a_table": "Answer questions about a table of penguins and their attributes.",
    "reasoning_about_colored_objects": "Answer extremely simple questions about the colors of objects on a surface.",
    "ruin_names": "Select the humorous edit that 'ruins' the input movie or musical artist name.",
    "salient_translation_error_detection": "Detect the type of error in an English translation of a German source "
    "sentence.",
    "snarks": "Determine which of two sentences is sarcastic.\n\nAccording to Cambridge University Dictionary, sarcasm "
    "is \"the use of remarks that clearly mean the opposite of what they say, made in order to hurt someone's feelings "
    'or to criticize something in a humorous way." Sarcastic sentences often contain satirical or ironic utterances, '
    "hyperboles, ambivalent or witty remarks.",
    "sports_understanding": "Determine whether an artificially constructed sentence relating to sports is plausible "
    "or not.",
    "temporal_sequences": "Task description: Answer questions about which times certain events could have occurred.",
    **dict.fromkeys(
        (f"tracking_shuffled_objects_{count}_objects" for count in ("five", "seven", "three")),
        "A task requiring determining the final positions of a set of objects given their initial positions and a "
        "description of a sequence of swaps.",
    ),
    "web_of_lies": "Evaluate a random boolean function expressed as a word problem.",
    "word_sorting": "Sort a list of words.",
}
"""The first lines of the authors' prompts, by task."""

ROWS: Final = {
    name: {"causal_judgement": 187, "penguins_in_a_table": 146, "snarks": 178}.get(name, 250)
    for name in DESCRIPTIONS
}
"""The number of examples of each task, 6511 in all."""


def answer_of(text: str) -> str | None:
    """Return the answer of a chain of thought, or None.

    It follows the first "the answer is " of a line. The last character of the line is dropped: it is a full stop in the
    authors' examples.
    """
    match = re.search(r"(?<=the answer is )(.*)(?=.)", text)
    return match[1].strip() if match else None


# Texts without a chain of thought


def flexible_answer(task: str, question: str, text: str) -> str | None:
    """Return the first answer in a text that has the form of the task's answers, or None."""
    return _READERS.get(task, _read_choice)(question, text)


def is_same_answer(answer: str, target: str) -> bool:
    """Return whether two answers are equal after normalization.

    Ignored are case, a full stop at the end, and all commas, line ends, backslashes and quotes.
    """
    return _normalize(answer) == _normalize(target)


def _normalize(text: str) -> str:
    return re.sub(r'[,\n\\"]', "", re.sub(r"\.$", "", text)).lower()


def _first_match(pattern: str, text: str) -> str | None:
    """Return the first match, stripped: its first non-empty group, if it has groups."""
    match = re.search(pattern, text)
    if match is None:
        return None
    return next((group for group in match.groups() if group), match[0]).strip() or None


def _without_punctuation(text: str) -> str:
    return "".join(
        character for character in text.lower() if not unicodedata.category(character).startswith("P")
    )


def _read_choice(question: str, text: str) -> str | None:
    """Read a letter in brackets, else the text of an option, else a letter after a colon."""
    if answer := _first_match(r"(\([A-Z]\))", text):
        return answer
    options = [
        _without_punctuation(option.strip()) for option in re.findall(r"\([A-Z]\)([^\n^(]*)", question)
    ]
    letters = dict(zip(options, ascii_uppercase, strict=False))
    forms = "|".join(re.escape(option) for option in sorted(options, key=len, reverse=True))
    if answer := _first_match(f"({forms})", _without_punctuation(text)):
        return f"({letters[answer]})" if answer in letters else answer
    letter = _first_match(rf":[\s]*({'|'.join(ascii_uppercase[: len(options)])})", text)
    return f"({letter})" if letter else None


_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: Final = {word: number for number, word in enumerate(_ONES.split())} | {
    word: 10 * number for number, word in enumerate(_TENS.split(), start=2)
}


def _read_number(_: str, text: str) -> str | None:
    """Read digits and hyphens (even a hyphen alone), else a number in words."""
    if digits := _first_match(r"([-0-9]+)", text):
        return digits
    longest = "|".join(sorted(_WORDS, key=len, reverse=True))
    words = re.search(rf"({longest})(?:\s+({longest}))?", text.lower())
    if words is None:
        return None
    first, more = _WORDS[words[1]], _WORDS.get(words[2] or "", 0)
    return str(first + more if first >= 20 and more < 10 else first)


def _read_word_order(question: str, text: str) -> str:
    """Return the listed words in the order of their last mention."""
    listed = question.split("List:")[1].split()
    mentions = re.findall("|".join(rf"\b{word}\b" for word in listed), text)
    return " ".join(reversed(dict.fromkeys(reversed(mentions))))


_AnswerReader: TypeAlias = Callable[[str, str], str | None]


def _pattern_reader(pattern: str) -> _AnswerReader:
    return lambda _, text: _first_match(pattern, text)


def _yes_no_reader(no: str, yes: str) -> _AnswerReader:
    """Return a reader of words that mean no or yes, in any case."""

    def read(_: str, text: str) -> str | None:
        match = re.search(rf"\b({no})\b|\b({yes})\b", text.lower())
        return None if match is None else "no" if match[1] else "yes"

    return read


_READERS: Final[Mapping[str, _AnswerReader]] = {
    "boolean_expressions": _pattern_reader(r"\b(True|False)\b"),
    "causal_judgement": _pattern_reader(r"\b(Yes|No|yes|no)\b"),
    "navigate": _pattern_reader(r"\b(Yes|No|yes|no)\b"),
    "formal_fallacies": _pattern_reader(r"\b(valid|invalid)\b"),
    "dyck_languages": _pattern_reader(r"(?<= )([\" \[\(<{}>\)\]]+)|([\" \[\(<{}>\)\]]+)"),
    "multistep_arithmetic_two": _read_number,
    "object_counting": _read_number,
    "sports_understanding": _yes_no_reader("no|not plausible", "yes|plausible"),
    "web_of_lies": _yes_no_reader(
        "no|does not tell the truth|is not telling the truth", "yes|tells the truth|is telling the truth"
    ),
    "word_sorting": _read_word_order,
}
"""The readers of answers by task; the answer of all other tasks is the letter of an option."""


class BbhRow(TypedDict):
    """A question, its answer, and the name of its file, which is the task."""

    input: str
    target: str
    file: str


BBH_HUB: Final = ("SaylorTwift/bbh", tuple(ROWS))
"""The set on the Hub, and its 27 configurations."""

BBH: Final[dict[str, Any]] = {
    "version": 1,
    "row": BbhRow,
    "asks": Generate,
    "group": "file",
}
"""The part of a declaration that all forms of the benchmark share."""

BBH_PAPER: Final = "Suzgun et al. 2022, arXiv 2210.09261"


def bbh_header(row: BbhRow) -> str:
    """Return the first lines of a prompt: the description of the row's task."""
    return f"{DESCRIPTIONS[row['file']]}\n\n"
