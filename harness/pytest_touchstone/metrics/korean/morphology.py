"""Korean morphemes by Kiwi, loaded when first needed.

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
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

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
    """The one Kiwi of this process: it takes two seconds to load and keeps no state between calls."""
    from kiwipiepy import Kiwi

    # One worker: the harness is parallel by processes already, and Kiwi would start one thread per core.
    return Kiwi(num_workers=1)


class Korean:
    """Answers questions about Korean text; costs nothing until the first one is asked (then two seconds)."""

    def __init__(self) -> None:
        # Caches belong to the instance: two instances share nothing, and a dropped one frees its memory.
        self.is_noun = functools.lru_cache(maxsize=65536)(self._is_noun)
        self.nouns = functools.lru_cache(maxsize=1024)(self._nouns)

    def morphemes(self, text: str) -> tuple[Morpheme, ...]:
        """The morphemes of ``text`` in order."""
        found = _shared_kiwi().tokenize(text)
        return tuple(
            Morpheme(str(t.form), str(t.tag), int(t.start), int(t.start) + int(t.len)) for t in found
        )

    def _nouns(self, text: str) -> tuple[Morpheme, ...]:
        """The maskable nouns of ``text`` in order (see the module's rule)."""
        return tuple(noun_occurrences(text, self.morphemes(text)))

    def _is_noun(self, token: str) -> bool:
        """Return whether the bare ``token`` is one noun (see the module's rule)."""
        bare = token.strip()
        found = self.morphemes(bare) if bare else ()
        return len(found) == 1 and found[0].tag in NOUN_TAGS and found[0].form == bare


def noun_occurrences(text: str, morphemes: Iterable[Morpheme]) -> Iterator[Morpheme]:
    """Those morphemes that are nouns of two characters or more and stand in ``text`` as they are."""
    for m in morphemes:
        if m.tag in NOUN_TAGS and len(m.form) >= SHORTEST_NOUN and text[m.start : m.end] == m.form:
            yield m
