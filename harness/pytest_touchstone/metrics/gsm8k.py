"""GSM8K: the number that an answer ends with, found in two ways and compared in two ways.

========================  =====================================  ===========================================
score                     what is read out of the output         when it is right
========================  =====================================  ===========================================
``exact_match_strict``    the first ``#### number``              same text as the gold, after trimming both
``exact_match_flexible``  the last thing like a number           same text as the gold, after trimming both
``exact_match_number``    the strict answer, else the last       same value as the gold
                          flexible one that is a number
========================  =====================================  ===========================================

The first two are ``strict-match`` and ``flexible-extract`` of lm-evaluation-harness 0.4.13
(``tasks/gsm8k/gsm8k.yaml``, version 3). Its rules have edge cases worth knowing:

* after ``#### `` an optional minus, then digits, full stops and commas: a ``$`` there means no strict answer;
* flexible takes two or more of digits, ``$``, full stop and comma, or else digits, an optional minus before
  either. Hence "5-3" ends with -3, an ellipsis counts as the last "number", and a year in a later sentence
  replaces the answer;
* trimming deletes commas, ``$``, everything up to the last ``#### ``, and one full stop at the end; case is
  ignored. So 1,000 is 1000, but 18.00 is not 18.

``exact_match_number`` is ours and forgives what the others do not: 18.00 is 18, ``18...`` is 18, a percent
sign stands outside the number. Values are compared as decimals, exactly, never as binary fractions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pytest_touchstone.core.benchmark import FinalAnswer, Solution
from pytest_touchstone.metrics.solutions import final_number

RULES: Final = ("strict", "flexible", "number")
MARK: Final = "#### "
STRICT: Final = re.compile(r"#### (-?[0-9.,]+)")
FLEXIBLE: Final = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
NUMBER: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class Gsm8kGrade:
    """The answers read from one output, each as it stands there, and the three verdicts."""

    strict: str | None
    flexible: str | None
    number: str | None
    exact_match_strict: bool
    exact_match_flexible: bool
    exact_match_number: bool
    gold: str = ""

    @property
    def extracted(self) -> dict[str, str | None]:
        """The three answers by rule."""
        return {how: getattr(self, how) for how in RULES}

    @staticmethod
    def same(one: str, other: str) -> bool:
        """Return whether two answers are equal by ``exact_match_flexible``."""
        return trimmed(one) == trimmed(other)

    @property
    def no_answer(self) -> bool:
        """Return whether the output holds no number at all."""
        return self.number is None

    @property
    def scores(self) -> dict[str, float]:
        """The three verdicts as numbers, by name."""
        return {f"exact_match_{how}": float(getattr(self, f"exact_match_{how}")) for how in RULES}


def grade_gsm8k(gold: str, output: str) -> Gsm8kGrade:
    """Grade one output; ``gold`` is the whole rationale that ends with ``#### number``, or the number."""
    candidates = FLEXIBLE.findall(output)
    strict, flexible = strict_answer(output), candidates[-1] if candidates else None
    wanted = trimmed(gold)
    readable = (text for text in (strict, *reversed(candidates)) if text and numeric(text) is not None)
    number = next(readable, None)
    return Gsm8kGrade(
        strict=strict,
        flexible=flexible,
        number=number,
        exact_match_strict=strict is not None and trimmed(strict) == wanted,
        exact_match_flexible=flexible is not None and trimmed(flexible) == wanted,
        exact_match_number=number is not None and numeric(number) == numeric(wanted),
        gold=wanted,
    )


def strict_answer(output: str) -> str | None:
    """The first ``#### number``, without the mark."""
    match = STRICT.search(output)
    return match[1] if match else None


def trimmed(text: str) -> str:
    """The text as it is compared: without what the rule ignores, in lower case."""
    rest = text.replace(",", "").replace("$", "").rpartition(MARK)[2]
    newline = "\n" if rest.endswith("\n") else ""
    return (rest.removesuffix(newline).removesuffix(".") + newline).lower()


def numeric(text: str) -> Decimal | None:
    """The value of a text that is one number, with or without commas, ``$``, ``%`` and full stops at its end."""
    bare = text.strip().replace(",", "").replace("$", "").rstrip(".%").rstrip()
    return Decimal(bare) if NUMBER.fullmatch(bare) else None


def _final(row: dict[str, Any]) -> FinalAnswer | None:
    """The number after the last ``####`` of a rationale."""
    steps, mark, number = str(row.get("answer")).rpartition(MARK)
    return final_number((steps + mark).rstrip(" "), number.strip()) if mark else None


GSM8K_SOLUTION: Final = Solution(lambda row: row["answer"], final=_final)
"""The whole rationale, calculator marks included."""
