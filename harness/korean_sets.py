"""The rules by which the Real and the Wikipedia LAMBADA sets are made from plain Korean text.

Real (coreference without pronouns: the second mention of a noun is masked):

1. texts shorter than 100 characters are skipped;
2. texts with a pronoun (Kiwi tag NP) are skipped;
3. nouns are NNG and NNP of at least 2 characters; those that occur at least twice are kept, in order of
   first occurrence;
4. for at most 3 of them a text: the **second** occurrence is replaced, by its character span, by one
   ``[MASK]``; the noun is the target;
5. all items are shuffled with the set's seed (999) and cut to the wanted number: 1600 for a 512-token
   model, times floor(seq_len / 512) for longer ones, divided over the sources.

Wikipedia LAMBADA (``ko_lambada_wiki``): one item a text. The text is cut off right behind its last noun, so
it **ends with the target**, which the benchmark masks; what is left must have at least 100 characters.
Shuffled with seed 42.

Texts that hold a literal ``[MASK]`` are skipped in both.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from harness.korean import Morpheme, has_pronoun, noun_occurrences, repeated_nouns
from harness.requests import MASK

Analyse: TypeAlias = Callable[[str], Sequence[Morpheme]]
Row: TypeAlias = dict[str, str]
T = TypeVar("T")

SHORTEST_TEXT: Final = 100
NOUNS_A_TEXT: Final = 3
BASE_SIZE: Final = 1600
BASE_SEQ_LEN: Final = 512
REAL_SEED: Final = 999
LAMBADA_SEED: Final = 42
HELD_OUT_ONE_IN: Final = 5


@dataclass(frozen=True, slots=True)
class Text:
    """A plain text and where it is from; ``text_id`` is unique, ``doc_id`` names its document."""

    text: str
    doc_id: str
    text_id: str


def is_held_out(doc_id: str) -> bool:
    """Whether a document is kept for the sets and never trained on: one in five, by a hash of its id."""
    digest = hashlib.sha256(doc_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def paragraphs(document: str, doc_id: str) -> Iterator[Text]:
    """The non-empty lines of a document, numbered from 0 in ``text_id`` (``DOC#NUMBER``)."""
    lines = (line.strip() for line in document.splitlines())
    for number, line in enumerate(filter(None, lines)):
        yield Text(line, doc_id, f"{doc_id}#{number}")


def real_size(seq_len: int, sources: int = 1) -> int:
    """The published number of items from one of ``sources`` for a model of ``seq_len`` tokens.

    2400 for 1536 tokens and two sources, 3200 for 2048.
    """
    return BASE_SIZE * max(1, seq_len // BASE_SEQ_LEN) // sources


def masked_at(text: str, span: Morpheme) -> str:
    """``text`` with one mask in the place of ``span``."""
    return text[: span.start] + MASK + text[span.end :]


def real_items(text: Text, morphemes: Sequence[Morpheme], source: str) -> Iterator[Row]:
    """The items that one text gives (rules 1 to 4), none to three."""
    if len(text.text) < SHORTEST_TEXT or MASK in text.text or has_pronoun(morphemes):
        return
    repeated = repeated_nouns(noun_occurrences(text.text, morphemes))
    for noun, occurrences in list(repeated.items())[:NOUNS_A_TEXT]:
        masked = masked_at(text.text, occurrences[1])
        yield {"text": masked, "target": noun, **_origin(text, source)}


def lambada_items(text: Text, morphemes: Sequence[Morpheme], source: str) -> Iterator[Row]:
    """The item that one text gives: the text up to and with its last noun, and that noun."""
    nouns = list(noun_occurrences(text.text, morphemes))
    if nouns and nouns[-1].end >= SHORTEST_TEXT and MASK not in text.text:
        yield {"text": text.text[: nouns[-1].end], "target": nouns[-1].form, **_origin(text, source)}


def build_real(
    texts: Iterable[Text], analyse: Analyse, *, source: str, seed: int = REAL_SEED, count: int | None = None
) -> list[Row]:
    """The Real set of ``texts``: at most ``count`` items (all, if None), the same ones each time."""
    rows = [
        row for text in texts if long_enough(text) for row in real_items(text, analyse(text.text), source)
    ]
    return shuffled(rows, seed)[:count]


def build_lambada(
    texts: Iterable[Text],
    analyse: Analyse,
    *,
    source: str,
    seed: int = LAMBADA_SEED,
    count: int | None = None,
) -> list[Row]:
    """The LAMBADA set of ``texts``: at most ``count`` items (all, if None), the same ones each time."""
    rows = [
        row for text in texts if long_enough(text) for row in lambada_items(text, analyse(text.text), source)
    ]
    return shuffled(rows, seed)[:count]


def long_enough(text: Text) -> bool:
    """Rule 1; asked before the analysis, which is what takes the time."""
    return len(text.text) >= SHORTEST_TEXT


def shuffled(rows: Sequence[T], seed: int) -> list[T]:
    """A copy of ``rows`` in an order that depends on ``seed`` alone."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order


def documents(rows: Iterable[dict[str, Any]], name: str) -> Iterator[tuple[str, str]]:
    """(id, text) of rows with a ``text``; a row without an ``id`` is called by ``name`` and its number."""
    for number, row in enumerate(rows):
        yield str(row.get("id", f"{name}:{number}")), str(row["text"])


def _origin(text: Text, source: str) -> Row:
    return {"source": source, "doc_id": text.doc_id, "text_id": text.text_id}
