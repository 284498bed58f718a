"""Texts that differ in a number, as columns, for the items of a page."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, overload

_FORM: Final = re.compile(r"(.*?)(0|[1-9][0-9]{0,17})([^0-9]*)", re.DOTALL)
_NO_NUMBER: Final = 2**64 - 1


def _parsed(text: str) -> tuple[tuple[str, str], int]:
    """Return what is before and after the last number of a text, and the number."""
    found = _FORM.fullmatch(text)
    before, number, after = found.groups() if found is not None else (text, "", "")
    return (before, after), int(number) if number else _NO_NUMBER


class NumberedTexts(Sequence[str]):
    """Texts of which many are alike but for their last number; such a text takes twelve bytes."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._codes, self._numbers = array("I"), array("Q")
        self._known: dict[tuple[str, str], int] = {}
        self._forms: list[tuple[str, str]] = []
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Append a text."""
        form, number = _parsed(text)
        self._codes.append(self._code(form))
        self._numbers.append(number)

    def _code(self, form: tuple[str, str]) -> int:
        code = self._known.setdefault(form, len(self._known))
        if code == len(self._forms):
            self._forms.append(form)
        return code

    def __len__(self) -> int:
        return len(self._codes)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        (before, after), number = self._forms[self._codes[place]], self._numbers[place]
        return before if number == _NO_NUMBER else f"{before}{number}{after}"

    def __setitem__(self, place: int, text: str) -> None:
        form, self._numbers[place] = _parsed(text)
        self._codes[place] = self._code(form)

    def __eq__(self, other: object) -> bool:
        """Return whether the texts are the same; of others with equal ones that may not be found."""
        if not isinstance(other, NumberedTexts):
            return NotImplemented
        return (self._forms, self._codes, self._numbers) == (other._forms, other._codes, other._numbers)

    __hash__ = None  # type: ignore[assignment]

    def places(self, chosen: Iterable[int] | None = None) -> TextPlaces:
        """Return what finds the places of texts, or of those in the places that are ``chosen``."""
        numbers = [array("Q") for _ in self._forms]
        found = [array("L") for _ in self._forms]
        for place in range(len(self)) if chosen is None else chosen:
            code = self._codes[place]
            numbers[code].append(self._numbers[place])
            found[code].append(place)
        return TextPlaces(dict(zip(self._forms, zip(numbers, found, strict=True), strict=True)))


class TextPlaces:
    """The places of texts, as columns of each form."""

    def __init__(self, forms: Mapping[tuple[str, str], tuple[array[int], array[int]]]) -> None:
        self._forms = dict(forms)
        for form, (numbers, places) in forms.items():
            if any(one >= other for one, other in pairwise(numbers)):
                pairs = dict(
                    zip(numbers, places, strict=True)
                )  # of a text that is there twice the last place
                ordered = sorted(pairs)
                self._forms[form] = array("Q", ordered), array("L", map(pairs.__getitem__, ordered))

    def get(self, text: str) -> int | None:
        """Return the place of a text; None where it has none."""
        form, number = _parsed(text)
        if (found := self._forms.get(form)) is None:
            return None
        numbers, places = found
        near = bisect_left(numbers, number)
        return places[near] if near < len(numbers) and numbers[near] == number else None
