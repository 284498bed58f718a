r"""GSM8K: the number that an answer ends with, found in two ways and compared in two ways.

========================  =====================================  ===========================================
score                     what is read out of the output         when it is right
========================  =====================================  ===========================================
``exact_match_strict``    the first ``#### number``              same text as the gold, after trimming both
``exact_match_flexible``  the last thing like a number           same text as the gold, after trimming both
``exact_match_number``    the number in the last ``\boxed{}``,   same value as the gold
                          else after ``####``, else the last one
========================  =====================================  ===========================================

The first two are ``strict-match`` and ``flexible-extract`` of lm-evaluation-harness 0.4.13
(``tasks/gsm8k/gsm8k.yaml``, version 3). Its rules have edge cases worth knowing:

* after ``#### `` an optional minus, then digits, full stops and commas: a ``$`` there means no strict answer;
* flexible takes two or more of digits, ``$``, full stop and comma, or else digits, an optional minus before
  either. Hence "5-3" ends with -3, an ellipsis counts as the last "number", and a year in a later sentence
  replaces the answer;
* trimming deletes commas, ``$``, everything up to the last ``#### ``, and one full stop at the end; case is
  ignored. So 1,000 is 1000, but 18.00 is not 18.

``exact_match_number`` is ours and reads numbers as people write them:

* ``1,000``, ``1 000`` (with any space), ``1{,}000``, ``1\,000``, ``1'000`` and ``1_000`` are 1000; commas between
  digits are ignored wherever they stand;
* ``$18.00``, ``18...`` and 18 with the digits of any script are 18, ``1e3`` and ``1 \times 10^3`` are 1000;
* ``8/3``, ``2 2/3``, ``\frac{8}{3}`` and ``2\frac{2}{3}`` are the same number;
* a minus of any kind belongs to a number unless a word or a number ends before it: "5-3" ends with 3;
* exponents, indices, dates and versions (``m^2``, ``2024-05-01``, ``1.2.3``) are no numbers.

The first number of a box counts, after its last equals sign if there is one. Of a text between ``<answer>`` and
``</answer>`` (``core.reasoning.strip_answer_tags``) only that is read. Values are compared exactly, never as binary
fractions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.benchmark import FinalAnswer, Solution
from pytest_touchstone.core.grade import Graded
from pytest_touchstone.core.reasoning import strip_answer_tags
from pytest_touchstone.metrics.math import BARE, boxed_answer
from pytest_touchstone.metrics.solutions import final_number

MARK: Final = "#### "
STRICT: Final = re.compile(r"#### (-?[0-9.,]+)")
FLEXIBLE: Final = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
MARKED: Final = re.compile(r"####[\s*(\\$€£¥₩]*")

_ASCII: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | dict.fromkeys(
    [0x2212, *range(0x2010, 0x2016), 0xFE63], "-"
)
"""The ASCII of full-width characters, and of signs for minus."""

_LATEX_NUMBERS: Final = (
    (re.compile(r"(?<=\d)\s*(?=\\[dt]?frac)"), " "),
    (re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))"), r"\1\2/\3\4"),
    (re.compile(r"(?<=\d)\s*(?:\\times|\\cdot|[×·*x])\s*10\s*\^\s*\{?([+-]?\d{1,3})(?!\d)\}?"), r"e\1"),
)
"""Numbers in LaTeX, and what they are replaced with."""

_SEPARATOR: Final = r"(?:,|\{,\}|,?\\[,;:!> ]|['’_~]|[^\S\n])"
_GROUPED: Final = re.compile(rf"(?<!\d)(?<!\d[.,])[1-9]\d{{0,2}}(?:{_SEPARATOR}\d{{3}})+(?!\d|-[a-z])")
"""A number with separators of thousands."""

_VALUE: Final = r"(?:\d++(?:,\d++)*+(?:\.\d++)?|(?<!\.)\.\d++)"
_NUMBER: Final = re.compile(
    rf"""(?P<sign>(?<![\w)\]}}%])-\\?[$€£¥₩]?|[$€£¥₩]-)?(?<!\d)(?<![\^_])(?<![\^_]{{)
    (?:\d++(?P<between>[-./:])\d++(?:(?P=between)\d++)+  # a date, a time or a version, which has no value
      |(?:(?P<whole>\d{{1,3}})[ ](?=\d+[ ]?/))?(?P<above>{_VALUE})(?:[eE](?P<exponent>[+-]?\d{{1,3}})(?!\w))?
       (?:[ ]?/[ ]?(?P<below>{_VALUE}))?)""",
    re.VERBOSE,
)


def grade_gsm8k(gold: str, output: str) -> Graded:
    """Grade one output; ``gold`` is the whole rationale that ends with ``#### number``, or the number.

    An output without a number that ``exact_match_number`` can read has no answer.
    """
    candidates = FLEXIBLE.findall(output)
    strict, flexible = strict_answer(output), candidates[-1] if candidates else None
    gold_text = normalize(gold)
    number, gold_number = find_answer_number(output), next(numbers_in(gold_text), None)
    return Graded(
        scores={
            "exact_match_strict": float(strict is not None and normalize(strict) == gold_text),
            "exact_match_flexible": float(flexible is not None and normalize(flexible) == gold_text),
            "exact_match_number": float(
                number is not None and gold_number is not None and number.value == gold_number.value
            ),
        },
        no_answer=number is None,
        extracted={"strict": strict, "flexible": flexible, "number": None if number is None else number.text},
        gold=gold_text,
        same=lambda left, right: normalize(left) == normalize(right),
    )


def strict_answer(output: str) -> str | None:
    """Return the first ``#### number``, without the mark."""
    match = STRICT.search(output)
    return match[1] if match else None


def normalize(text: str) -> str:
    """Return the text for comparison: in lower case, without what the rule ignores."""
    rest = text.replace(",", "").replace("$", "").rpartition(MARK)[2]
    newline = "\n" if rest.endswith("\n") else ""
    return (rest.removesuffix(newline).removesuffix(".") + newline).lower()


class ParsedNumber(NamedTuple):
    """A number: the text that it was read from, as ``normalize_numbers`` has it, and its value."""

    text: str
    value: Fraction


def find_answer_number(output: str) -> ParsedNumber | None:
    """Return the number that ``exact_match_number`` compares, or None.

    It is that of the last closed box, else the first after ``####``, else the last in the text.
    """
    text = strip_answer_tags(output)
    box = boxed_answer(text.replace(BARE, BARE.rstrip())) or ""
    for candidate in (box.rpartition("=")[2], box):
        if (number := next(numbers_in(candidate), None)) is not None:
            return number
    ascii_text = normalize_numbers(text)
    for mark in MARKED.finditer(ascii_text):
        match = _NUMBER.match(ascii_text[mark.end() :])
        if match and (number := _parse_number(match)) is not None:
            return number
    matches = reversed([*_NUMBER.finditer(ascii_text)])
    return next(filter(None, map(_parse_number, matches)), None)


def normalize_numbers(text: str) -> str:
    """Rewrite numbers: ASCII digits and signs, no separators of thousands, no LaTeX fractions or powers of ten."""
    if not text.isascii():
        text = re.sub(r"\d", lambda digit: str(int(digit[0])), text.translate(_ASCII))
    for pattern, replacement in _LATEX_NUMBERS:
        text = pattern.sub(replacement, text)
    return _GROUPED.sub(lambda number: re.sub(_SEPARATOR, "", number[0]), text)


def numbers_in(text: str) -> Iterator[ParsedNumber]:
    """Return the numbers of a text, from its beginning to its end."""
    return filter(None, map(_parse_number, _NUMBER.finditer(normalize_numbers(text))))


def _parse_number(match: re.Match[str]) -> ParsedNumber | None:
    """Return the number that was found; None for a date, and for a fraction by 0."""
    if match["between"]:
        return None
    above, below = (Decimal((match[name] or "1").replace(",", "")) for name in ("above", "below"))
    if not below:
        return None
    power = Fraction(10) ** int(match["exponent"] or 0)
    value = Fraction(above) * power / Fraction(below) + int(match["whole"] or 0)
    return ParsedNumber(match[0], -value if match["sign"] else value)


def _final_answer(row: dict[str, Any]) -> FinalAnswer | None:
    """Return the number after the last ``####`` of a rationale."""
    steps, mark, number = str(row.get("answer")).rpartition(MARK)
    return final_number((steps + mark).rstrip(" "), number.strip()) if mark else None


GSM8K_SOLUTION: Final = Solution(lambda row: row["answer"], final=_final_answer)
"""The whole rationale, calculator marks included."""
