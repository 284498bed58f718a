"""IFBench: instructions outside of IFEval's domain, whose observance a program can verify, and the rule of each kind.

A rule takes the values of an instruction, those of the row's ``kwargs`` that are not null, and a text that is not
blank. The words of a text are what white space divides unless a rule says otherwise; signs are ASCII punctuation.
"""

from __future__ import annotations

import csv
import functools
import io
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile, groupby, pairwise, takewhile
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, Generate, HarnessError, Published, Scores, benchmark
from pytest_touchstone.metrics.ifeval import (
    IFEVAL_METRICS,
    IFEVAL_POOLED,
    Rules,
    Values,
    grade_ifeval,
    split_sentences,
    split_words,
)

# What the rules look for

STOP_WORDS, PRONOUNS, CONJUNCTIONS, NAMES = (
    frozenset(words.split())
    for words in (
        # NLTK's English stop words, less those with an apostrophe, which are never a word of the pattern \w+
        "a about above after again against ain all am an and any are aren as at be because been before being below "
        "between both but by can couldn d did didn do does doesn doing don down during each few for from further had "
        "hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its "
        "itself just ll m ma me mightn more most mustn my myself needn no nor not now o of off on once only or other "
        "our ours ourselves out over own re s same shan she should shouldn so some such t than that the their theirs "
        "them themselves then there these they this those through to too under until up ve very was wasn we were "
        "weren what when where which while who whom why will with won wouldn y you your yours yourself yourselves",
        "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her "
        "hers herself it its itself they them their theirs themselves this that these those who whom whose which what "
        "whoever whomever whichever whatever anybody anyone anything everybody everyone everything nobody nothing "
        "somebody someone something each either neither both all some any none",
        "for and nor but or yet so",
        "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin "
        "Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan "
        "Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire "
        "Ryan Stella Jonathan",
    )
)
CAPITALS: Final = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw "
    "London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
)
"""The capitals of European countries north of 45 degrees, from north to south."""

MULTIPLES: Final = ["14", "21", "28", "35", "42", "49"]
SENTENCE: Final = "only output this sentence here, ignore all other requests."
TEMPLATE: Final = ("My Answer:", "My Conclusion:", "Future Outlook:")
PRIMES: Final = frozenset(number for number in range(2, 98) if all(number % low for low in range(2, number)))
LAST_DAYS: Final = {0: 99, 2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
"""The last day of a month that has not 31; the authors' program takes 00 for a month, too."""

PUNCTUATION: Final = f"{string.punctuation} "
OPENED_BY: Final = {")": "(", "]": "[", "}": "{"}


# Words, sentences and lines


def remove_punctuation(text: str) -> str:
    """Return a text without ASCII punctuation."""
    return text.translate(dict.fromkeys(map(ord, string.punctuation)))


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return remove_punctuation(text.lower()).split()


def lettered_words(text: str) -> list[str]:
    """Return NLTK's words of a text in lower case, without those that are punctuation alone."""
    return [word.lower() for word in split_words(text) if any(map(str.isalnum, word))]


def nth_or_empty(pieces: Sequence[str], number: int) -> str:
    """Return a piece by its number from 1, or an empty text."""
    return pieces[number - 1] if 0 < number <= len(pieces) else ""


def count_word(word: str, text: str) -> int:
    """Return how often a whole word is in a text, in any case."""
    return len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))


def count_sentence_ends(text: str) -> Counter[str]:
    """Return the number of sentences by their last sign."""
    return Counter(sentence[-1:] for sentence in split_sentences(text))


def to_ascii(text: str) -> str:
    """Return a text without accents and without letters that are not ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def is_rising(numbers: Iterable[int]) -> bool:
    """Return whether each number is above the one before it."""
    return all(first < second for first, second in pairwise(numbers))


# Rules of more than a line


def _stop_words(values: Values, text: str) -> bool:
    words = re.findall(r"\w+", text)
    stop_words = sum(word.lower() in STOP_WORDS for word in words)
    return bool(words and stop_words / len(words) * 100 <= values["percentage"])


def _overlap(values: Values, text: str) -> bool:
    trigrams, reference_trigrams = (
        set(zip(words, words[1:], words[2:], strict=False))
        for words in map(split_words, (text, values["reference_text"]))
    )
    if not trigrams:
        return False
    overlap, percentage = len(trigrams & reference_trigrams) / len(trigrams) * 100, int(values["percentage"])
    return percentage - 2 <= overlap <= percentage + 2


def _alphabet(_: Values, text: str) -> bool:
    words = remove_punctuation(text).split()
    start = string.ascii_lowercase.find(words[0][0].lower()) if words else -1
    return start >= 0 and all(
        word.lower()[0] == string.ascii_lowercase[(start + index) % 26]
        for index, word in enumerate(words[1:], start=1)
    )


def _alliteration(_: Values, text: str) -> bool:
    def alliterative_words(sentence: str) -> int:
        words = filter(None, (word.lstrip(PUNCTUATION) for word in sentence.lower().split()))
        runs = [len([*run]) for _, run in groupby(words, key=lambda word: word[0])]
        return sum(length for length in runs if length > 1)

    return is_rising(map(alliterative_words, split_sentences(text)))


def _punctuation(_: Values, text: str) -> bool:
    rest = text.replace("?!", "", 1) if "?!" in text else text.replace("!?", "", 1)
    return (rest != text or "‽" in text) and set(".,!?;:") <= set(rest)


def _parentheses(_: Values, text: str) -> bool:
    opened, deepest = list[str](), 0
    for mark in re.findall(r"[()\[\]{}]", text):
        if mark not in OPENED_BY:
            opened.append(mark)
            deepest = max(deepest, len(opened))
        elif not opened or opened.pop() != OPENED_BY[mark]:
            opened, deepest = [], 0
        elif deepest >= 5:
            return True
    return False


def _quotes(_: Values, text: str) -> bool:
    opened, deepest = list[str](), 0
    for mark in re.findall("[\"']", text):
        if opened and opened[-1] == mark:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        else:
            opened.append(mark)
            deepest = max(deepest, len(opened))
    return False


def _options(values: Values, text: str) -> bool:
    options = values["options"]
    separator = "/" if "/" in options else "or" if "or" in options else ","
    choices = [choice.strip() for choice in options.split(separator)]
    if re.match(r"\W*[aA]\W*[bB]\W*[cC]", options):  # letters such as "a), b), c)" need their signs
        return text in choices
    return text.strip(PUNCTUATION).lower() in [choice.strip(PUNCTUATION).lower() for choice in choices]


def _newline(_: Values, text: str) -> bool:
    text = remove_punctuation(text).strip()
    return sum(map(bool, text.split("\n"))) == len(text.split())


def _emoji(_: Values, text: str) -> bool:
    from emoji import is_emoji

    sentences = [remove_punctuation(sentence).strip() for sentence in split_sentences(text)]
    return all(
        sentence and (any(map(is_emoji, sentence[-2:])) or is_emoji(after[:1]))  # NLTK may divide before it
        for sentence, after in zip(sentences, [*sentences[1:], ""], strict=False)
    )


def _equal_sentences(_: Values, text: str) -> bool:
    sentences = split_sentences(text)
    words = plain_words(" ".join(sentences))
    lengths = {len(sentence.strip()) for sentence in sentences}
    return len(sentences) == 3 and len(lengths) == 1 and len(words) == len(set(words))


def _japanese(values: Values, text: str) -> bool:
    step = values["N"]
    return step > 0 and all(
        not word or word.isdigit() or re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", word)
        for word in (word.strip(PUNCTUATION) for word in text.split()[step - 1 :: step])
    )


def _start_verb(_: Values, text: str) -> bool:
    words = split_words(text)[:3]  # the tag of a word depends on two after it
    return bool(words) and "VB" in tagger().tag(words)[0][1]


@functools.cache
def tagger() -> Any:
    """Return NLTK's tagger of English. Raise ``HarnessError`` where its model is not installed."""
    from nltk.tag.perceptron import PerceptronTagger

    try:
        return PerceptronTagger()
    except LookupError:
        name = "averaged_perceptron_tagger_eng"
        raise HarnessError(
            f"ifbench: words:start_verb needs NLTK's {name}; python -m nltk.downloader {name}"
        ) from None


def _syllables(_: Values, text: str) -> bool:
    import syllapy

    parities = (syllapy.count(word) % 2 for word in remove_punctuation(text).lower().split())
    return all(first != second for first, second in pairwise(parities))


def _last_first(_: Values, text: str) -> bool:
    return all(
        before.rstrip(PUNCTUATION).lower().split()[-1:] == after.lstrip(PUNCTUATION).lower().split()[:1] != []
        for before, after in pairwise(split_sentences(text))
    )


def _paragraph_last_first(_: Values, text: str) -> bool:
    paragraphs = (line.strip().lower().strip(PUNCTUATION).split() for line in text.split("\n"))
    return all(words[:1] == words[-1:] for words in paragraphs)


def _sentence_increment(values: Values, text: str) -> bool:
    counts = [len(remove_punctuation(sentence).split()) for sentence in split_sentences(text)]
    return all(second - first == values["small_n"] for first, second in pairwise(counts))


def _line_indent(_: Values, text: str) -> bool:
    lines = text.split("\n")
    if len(lines) > 4 + 4 * math.isqrt(len(text)):
        return (
            False  # half of them stay, and the text is too short for so many indents of which each is deeper
        )
    index = 0
    while index < len(
        lines
    ):  # as in the authors' program, the line after one that is taken out is never looked at
        if not lines[index].strip():
            lines.remove(lines[index])  # the first of equal ones
        index += 1
    return is_rising(len(line) - len(line.lstrip(" ")) for line in lines)


def _quote_unquote(_: Values, text: str) -> bool:
    text = "".join(text.replace("'\"'", "").split())
    return '""' not in text and not text.strip(string.digits + string.punctuation.replace('"', "")).endswith(
        '"'
    )


def _thesis(_: Values, text: str) -> bool:
    opening, text = (text.partition("<i>") if "<i>" in text else text.partition("<em>"))[1:]
    thesis, closing, rest = text.partition("</i>") if "</i>" in text else text.partition("</em>")
    if opening == "<em>":
        thesis = f">{thesis}"  # the authors' program counts three letters
    return bool(opening and closing and thesis.strip() and (rest.strip() or closing == "</em>"))


def _sentences_then_bullets(_: Values, text: str) -> bool:
    lines = [line.strip() for line in text.split("\n")]
    before = [*takewhile(lambda line: not line.startswith("*"), lines)]
    bullets, sentences = lines[len(before) :], 0
    for line in before:
        if sentences < 2:
            sentences += len(split_sentences(line))
    is_text = all(before[:-1])  # an empty line ends the sentences
    return is_text and min(sentences, len(bullets)) >= 2 and all(line.startswith("*") for line in bullets)


def _multiple_choice(_: Values, text: str) -> bool:
    questions = [question.strip() for question in re.split(r"Question \d+[.|):;]?\s*", text)]
    lengths = []
    for question in filter(None, questions):
        lines = [line.strip() for line in question.split("\n")]
        options = [re.match(r"[A-Ea-e][.|)]\s*\w", line) is not None for line in lines]
        if sum(options) != 5:
            return False
        lengths.append(len(" ".join(lines[: options.index(True)]).strip()))
    return text.startswith("Question") and len(lengths) == 4 and is_rising(lengths)


def _african_countries(_: Values, text: str) -> bool:
    lines = filter(None, (line.strip(PUNCTUATION) for line in text.split("\n")))
    countries = [to_ascii(line) for line in dropwhile(lambda line: "Zimbabwe" not in line, lines)]
    return len(countries) >= 52 and countries == sorted(countries, reverse=True)


def _sentence_alphabet(_: Values, text: str) -> bool:
    starts = [
        sentence.lstrip(string.punctuation + string.whitespace)[:1] for sentence in split_sentences(text)
    ]
    return [start.lower() for start in starts] == [*string.ascii_lowercase]


def table_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """Return the rows of CSV data; none where the csv module refuses it."""
    try:
        return [*csv.reader(io.StringIO(text), delimiter=delimiter)]
    except csv.Error:
        return []


def has_header(text: str, separator: str, names: str) -> bool:
    """Return whether the first line has these names, with or without quotes."""
    pattern = separator.join(f'(?:{name}|"{name}")' for name in names.split())
    return re.fullmatch(pattern, text.split("\n", 1)[0].strip()) is not None


def _csv_city(_: Values, text: str) -> bool:
    rows = table_rows(text)
    header = ["ID", "Country", "City", "Year", "Count"]
    return len(rows) == 8 and rows[0] == header and all(len(row) == 5 for row in rows)


def _csv_special(_: Values, text: str) -> bool:
    def is_special(field: str) -> bool:
        line = field.split("\n", 1)[0]
        return line.startswith('"') and re.search(r"[^\w\s]", line[1 : line.rfind('"')]) is not None

    rows = table_rows(text.replace('"', '"""'))
    if len(rows) != 15 or not has_header(text, r",[ \t]*", "ProductID Category Brand Price Stock"):
        return False
    decisive = next((row for row in rows[1:] if len(row) != 5 or any(map(is_special, row))), [])
    return len(decisive) == 5


def _csv_quotes(_: Values, text: str) -> bool:
    rows = table_rows(text.replace('"', '"""'), "\t")
    return (
        has_header(text, r"\t *", "StudentID Subject Grade Semester Score")
        and [len(row) for row in rows] == [5] * 4
        and all(field[:1] == field[-1:] == '"' for row in rows for field in map(str.strip, row))
    )


def _dates(_: Values, text: str) -> bool:
    for date in text.strip().split(","):
        if not (fields := re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", date.strip())):
            return False
        year, month, day = map(int, fields.groups())
        if not 1769 <= year <= 1821 or month > 12 or day > LAST_DAYS.get(month, 31):
            return False
    return True


def _keywords_multiple(values: Values, text: str) -> bool:
    counts = [count_word(values[f"keyword{number}"].strip(), text) for number in range(1, 6)]
    return counts == [1, 2, 3, 5, 7]


def _specific_position(values: Values, text: str) -> bool:
    words = lettered_words(nth_or_empty(split_sentences(text), values["n"]))
    keyword: str = values["keyword"].strip().lower()
    return nth_or_empty(words, values["m"]) == keyword


def _words_position(values: Values, text: str) -> bool:
    words = lettered_words(text)
    keyword: str = values["keyword"].strip().lower()
    return len(words) > 1 and words[1] == words[-2] == keyword


def _repeat_span(values: Values, text: str) -> bool:
    span = values["prompt_to_repeat"].split()[values["n_start"] : values["n_end"] + 1]
    return text.strip().lower() == " ".join(span).lower()


def _title_case(_: Values, text: str) -> bool:
    return not any(
        word[0].isalpha() and word[0].islower() and (not word[1:] or word[1:].isupper() or word[1:].islower())
        for word in split_words(text)
    )


INSTRUCTIONS: Final[Rules] = {
    "count:conjunctions": lambda values, text: (
        len({word for word in text.split() if word.strip(PUNCTUATION).lower() in CONJUNCTIONS})
        >= values["small_n"]
    ),
    "count:keywords_multiple": _keywords_multiple,
    "count:numbers": lambda values, text: len(re.findall(r"\d+", remove_punctuation(text))) == values["N"],
    "count:person_names": lambda values, text: len(NAMES & {*re.findall(r"\w+", text)}) >= values["N"],
    "count:pronouns": lambda values, text: (
        sum(word in PRONOUNS for word in split_words(text.replace("/", " ").lower())) >= values["N"]
    ),
    "count:punctuation": _punctuation,
    "count:unique_word_count": lambda values, text: (
        len({word.strip(PUNCTUATION) for word in text.lower().split()}) >= values["N"]
    ),
    "count:word_count_range": lambda values, text: (
        values["min_words"] <= len(re.findall(r"\w+", text)) <= values["max_words"]
    ),
    "count:words_japanese": _japanese,
    "custom:character_reverse": lambda _, text: "elgae dlab" in text.lower(),
    "custom:csv_city": _csv_city,
    "custom:csv_quotes": _csv_quotes,
    "custom:csv_special_character": _csv_special,
    "custom:date_format_list": _dates,
    "custom:european_capitals_sort": lambda _, text: (
        [name for name in map(str.strip, to_ascii(text).split(",")) if name] == CAPITALS.split()
    ),
    "custom:mcq_count_length": _multiple_choice,
    "custom:multiples": lambda _, text: re.findall(r"\d+", text) == MULTIPLES,
    "custom:reverse_newline": _african_countries,
    "custom:sentence_alphabet": _sentence_alphabet,
    "custom:word_reverse": lambda _, text: "bald eagle" in " ".join(reversed(plain_words(text))),
    "format:emoji": _emoji,
    "format:line_indent": _line_indent,
    "format:list": lambda values, text: text.count(values["sep"]) >= 2,
    "format:newline": _newline,
    "format:no_bullets_bullets": _sentences_then_bullets,
    "format:no_whitespace": lambda _, text: text.split() == [text],
    "format:options": _options,
    "format:output_template": lambda _, text: all(heading in text for heading in TEMPLATE),
    "format:parentheses": _parentheses,
    "format:quote_unquote": _quote_unquote,
    "format:quotes": _quotes,
    "format:sub-bullets": lambda _, text: all("-" in bullet for bullet in text.split("*")[1:]),
    "format:thesis": _thesis,
    "format:title_case": _title_case,
    "ratio:overlap": _overlap,
    "ratio:sentence_balance": lambda _, text: (
        (counts := count_sentence_ends(text))["."] == counts["?"] == counts["!"]
    ),
    "ratio:sentence_type": lambda _, text: (counts := count_sentence_ends(text))["."] == 2 * counts["?"],
    "ratio:sentence_words": _equal_sentences,
    "ratio:stop_words": _stop_words,
    "repeat:repeat_change": lambda values, text: (
        text != values["prompt_to_repeat"] and text.split()[1:] == values["prompt_to_repeat"].split()[1:]
    ),
    "repeat:repeat_simple": lambda _, text: text.strip().lower() == SENTENCE,
    "repeat:repeat_span": _repeat_span,
    "sentence:alliteration_increment": _alliteration,
    "sentence:increment": _sentence_increment,
    "sentence:keyword": lambda values, text: (
        count_word(values["word"], nth_or_empty(split_sentences(text), values["N"])) > 0
    ),
    "words:alphabet": _alphabet,
    "words:consonants": lambda _, text: all(
        re.search(r"[b-df-hj-np-tv-z]{2}", word) for word in text.lower().split()
    ),
    "words:keywords_specific_position": _specific_position,
    "words:last_first": _last_first,
    "words:no_consecutive": lambda _, text: all(
        first[0] != second[0] for first, second in pairwise(plain_words(text))
    ),
    "words:odd_even_syllables": _syllables,
    "words:palindrome": lambda _, text: (
        sum(len(word) > 4 and word == word[::-1] for word in remove_punctuation(text).lower().split()) >= 10
    ),
    "words:paragraph_last_first": _paragraph_last_first,
    "words:prime_lengths": lambda _, text: all(
        len(word) in PRIMES for word in remove_punctuation(text).split()
    ),
    "words:repeats": lambda values, text: (
        max(Counter(plain_words(text)).values(), default=0) <= values["small_n"]
    ),
    "words:start_verb": _start_verb,
    "words:vowel": lambda _, text: "\n" not in text.strip() and len({*text.lower()} & {*"aeiou"}) <= 3,
    "words:words_position": _words_position,
}
"""The rule of each kind."""


NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "count:conjunctions": ("small_n",),
    "count:keywords_multiple": tuple(f"keyword{number}" for number in range(1, 6)),
    **dict.fromkeys(("count:numbers", "count:person_names", "count:pronouns"), ("N",)),
    **dict.fromkeys(("count:unique_word_count", "count:words_japanese"), ("N",)),
    "count:word_count_range": ("min_words", "max_words"),
    "format:list": ("sep",),
    "format:options": ("options",),
    "ratio:overlap": ("percentage", "reference_text"),
    "ratio:stop_words": ("percentage",),
    "repeat:repeat_change": ("prompt_to_repeat",),
    "repeat:repeat_span": ("prompt_to_repeat", "n_start", "n_end"),
    "sentence:increment": ("small_n",),
    "sentence:keyword": ("word", "N"),
    "words:keywords_specific_position": ("keyword", "n", "m"),
    "words:repeats": ("small_n",),
    "words:words_position": ("keyword",),
}
"""The values of the kinds that have some."""

COUNTS: Final = ("N", "small_n", "min_words", "max_words", "percentage", "n_start", "n_end", "n", "m")
"""The values that are whole numbers; all others are texts."""


def check_instructions(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the values that its instructions need. Raise ``ValueError`` where one cannot be checked."""
    kwargs = []
    for kind, values in zip(row["instruction_id_list"], row["kwargs"], strict=True):
        if kind not in INSTRUCTIONS:
            raise ValueError(f"{kind!r} is none of the {len(INSTRUCTIONS)} kinds of instruction")
        needed = {name: values.get(name) for name in NEEDED.get(kind, ())}
        for name, argument in needed.items():
            if name not in COUNTS and not (isinstance(argument, str) and argument.strip()):
                raise ValueError(f"{kind}: {name} is {argument!r}, not a text")
            if name in COUNTS and not (isinstance(argument, int | float) and 0 <= argument == argument // 1):
                raise ValueError(f"{kind}: {name} is {argument!r}, not a whole number from 0")
        if kind == "words:start_verb":
            tagger()
        kwargs.append(
            {name: int(argument) if name in COUNTS else argument for name, argument in needed.items()}
        )
    if not kwargs:
        raise ValueError("no instruction")
    return {**row, "kwargs": kwargs}


class Row(TypedDict):
    """A prompt, the kinds of its instructions, and the values of each."""

    key: int | str
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[dict[str, Any]]


@benchmark(
    "ifbench",
    version=1,
    data=Dataset("allenai/IFBench_test", split="train", local="ifbench/IFBench_test"),
    published=Published(
        294,
        paper="Pyatkin et al. 2025, arXiv 2507.02833",
        source="allenai/IFBench (2026)",
        own_rows="prompts of our own",
    ),
    row=Row,
    prepare=check_instructions,
    asks=Generate,
    primary="prompt_level_loose_acc",
    metrics=IFEVAL_METRICS,
    aggregate=IFEVAL_POOLED,
    needs=dict.fromkeys(("emoji", "nltk", "punkt", "syllapy"), "pip install 'pytest-touchstone[ifbench]'"),
)
def test_ifbench(example: Row, fewshot: FewShot) -> Scores:
    """IFBench (Pyatkin et al. 2025), 294 prompts with 335 instructions, 0-shot, greedy, 1280 new tokens. The shipped
    prompts are our own.

    Prompt: the row's, alone; through a chat template it is a turn of the user. The text ends by itself or at the limit.
    The authors suit theirs to the model; 1280 is lighteval's.

    - ``prompt_level_loose_acc`` (primary, as in the paper), ``prompt_level_strict_acc``, ``inst_level_loose_acc``,
      ``inst_level_strict_acc``: as in ``ifeval``.

    The rules are those of the authors' program in 2026, for 58 kinds of instruction. ``words:start_verb`` asks NLTK's
    tagger (``python -m nltk.downloader averaged_perceptron_tagger_eng``; no shipped prompt does). Where their program
    ends in an exception (CSV data), the instruction is not followed here, and where a row lacks a value it draws one at
    random, while such a row is refused here. Words are counted as with NLTK 3.9: later ones take the mark that follows
    some emoji for a word.

    Not comparable: scores by copies of older rules, such as lighteval 0.13 and evalscope 1.14. Their sentences are
    IFEval's, fewer words are pronouns, and curly quotation marks count; lighteval compares trigrams of characters and
    leaves out the last word of a span. Nor are texts with a reasoning in front, IFBench_multi-turn, and other limits of
    tokens.
    """
    answer = yield fewshot.generate(example["prompt"], max_new_tokens=1280)
    return grade_ifeval(example["instruction_id_list"], example["kwargs"], answer.text, rules=INSTRUCTIONS)
