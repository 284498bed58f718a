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
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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

REPEATED: Final = "the same as an earlier text"
TOO_SHORT: Final = "shorter than {shortest} characters"
HAS_MASK: Final = f"has a literal {MASK}"
HAS_PRONOUN: Final = "has a pronoun"
NO_REPEATED: Final = "no noun occurs twice"
NO_NOUN: Final = "ends before character {shortest} once cut behind its last noun"
REAL_RULES: Final = (REPEATED, TOO_SHORT, HAS_MASK, HAS_PRONOUN, NO_REPEATED)
LAMBADA_RULES: Final = (REPEATED, TOO_SHORT, HAS_MASK, NO_NOUN)
"""What a text may fall to, in this order; ``{shortest}`` is the fewest characters of a text."""


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


@dataclass(slots=True)
class Sifted:
    """What a source's texts have given: how many fell to which rule (each to the first), which documents there were and
    are left, and all items in the order of the texts. ``shortest``: the fewest characters of a text that is taken."""

    source: str
    fallen: dict[str, int]
    shortest: int = SHORTEST_TEXT
    read: int = 0
    documents: set[str] = field(default_factory=set)
    documents_left: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Texts that gave an item."""
        return self.read - sum(self.fallen.values())

    def told(self) -> dict[str, int]:
        """How many fell to which rule, in words for a person."""
        return {rule.format(shortest=self.shortest): count for rule, count in self.fallen.items()}


def sift_real(
    texts: Iterable[Text],
    analyse: Analyse,
    *,
    source: str,
    once: bool = False,
    shortest: int = SHORTEST_TEXT,
) -> Sifted:
    """The items of ``texts`` (rules 1 to 4), none to three a text; ``once``: of equal texts only the first.
    ``shortest``: the characters that rule 1 asks for."""
    found = Sifted(source, dict.fromkeys(REAL_RULES, 0), shortest)
    return _sift(texts, analyse, _real_items, found, once=once)


def sift_lambada(
    texts: Iterable[Text],
    analyse: Analyse,
    *,
    source: str,
    once: bool = False,
    shortest: int = SHORTEST_TEXT,
) -> Sifted:
    """The items of ``texts``, at most one a text: the text up to and with its last noun, and that noun."""
    found = Sifted(source, dict.fromkeys(LAMBADA_RULES, 0), shortest)
    return _sift(texts, analyse, _lambada_items, found, once=once)


def drawn_from(sifted: Sequence[Sifted], *, seed: int, count: int | None) -> list[Row]:
    """At most ``count`` items of each source (all, if None), the same ones each time, all of them shuffled."""
    parts = [shuffled(one.rows, seed)[:count] for one in sifted]
    return parts[0] if len(parts) == 1 else shuffled([row for part in parts for row in part], seed)


def build_real(
    texts: Iterable[Text], analyse: Analyse, *, source: str, seed: int = REAL_SEED, count: int | None = None
) -> list[Row]:
    """The Real set of ``texts``: at most ``count`` items (all, if None), the same ones each time."""
    return drawn_from([sift_real(texts, analyse, source=source)], seed=seed, count=count)


def build_lambada(
    texts: Iterable[Text],
    analyse: Analyse,
    *,
    source: str,
    seed: int = LAMBADA_SEED,
    count: int | None = None,
) -> list[Row]:
    """The LAMBADA set of ``texts``: at most ``count`` items (all, if None), the same ones each time."""
    return drawn_from([sift_lambada(texts, analyse, source=source)], seed=seed, count=count)


def shuffled(rows: Sequence[T], seed: int) -> list[T]:
    """A copy of ``rows`` in an order that depends on ``seed`` alone."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order


def documents(
    rows: Iterable[dict[str, Any]], name: str, text_field: str = "text"
) -> Iterator[tuple[str, str]]:
    """(id, text) of rows with such a field; one without an ``id`` or ``guid`` is called by ``name`` and its
    number."""
    for number, row in enumerate(rows):
        yield str(row.get("id", row.get("guid", f"{name}:{number}"))), str(row[text_field])


def heading_sentences(table: str) -> Iterator[tuple[str, str]]:
    """(id, sentence) of a file of KLUE with a line a morpheme: the sentences stand in lines ``## ID, tab, SENTENCE``,
    with named entities as ``<NAME:TAG>``, of which the name is the text."""
    for line in table.splitlines():
        found = re.fullmatch(r"## ([^\t:]+)\t(.+)", line)
        if found is not None:
            yield found[1], re.sub(r"<([^<>]+):[A-Z]{2}>", r"\1", found[2])


def _real_items(text: Text, analyse: Analyse, shortest: int) -> str | list[Row]:
    """The items of a text, or the rule that it falls to."""
    if len(text.text) < shortest:  # before the analysis, which is what takes the time
        return TOO_SHORT
    if MASK in text.text:
        return HAS_MASK
    morphemes = analyse(text.text)
    if has_pronoun(morphemes):
        return HAS_PRONOUN
    repeated = repeated_nouns(noun_occurrences(text.text, morphemes))
    rows = [
        {"text": masked_at(text.text, occurrences[1]), "target": noun}
        for noun, occurrences in list(repeated.items())[:NOUNS_A_TEXT]
    ]
    return rows or NO_REPEATED


def _lambada_items(text: Text, analyse: Analyse, shortest: int) -> str | list[Row]:
    if len(text.text) < shortest:
        return TOO_SHORT
    if MASK in text.text:
        return HAS_MASK
    nouns = list(noun_occurrences(text.text, analyse(text.text)))
    if not nouns or nouns[-1].end < shortest:
        return NO_NOUN
    return [{"text": text.text[: nouns[-1].end], "target": nouns[-1].form}]


def _sift(
    texts: Iterable[Text],
    analyse: Analyse,
    items: Callable[[Text, Analyse, int], str | list[Row]],
    found: Sifted,
    *,
    once: bool,
) -> Sifted:
    seen: set[str] = set()
    for text in texts:
        found.read += 1
        found.documents.add(text.doc_id)
        given = REPEATED if once and text.text in seen else items(text, analyse, found.shortest)
        seen.add(text.text)
        if isinstance(given, str):
            found.fallen[given] += 1
            continue
        found.documents_left.add(text.doc_id)
        found.rows += [{**row, **_origin(text, found.source)} for row in given]
    return found


def _origin(text: Text, source: str) -> Row:
    return {"source": source, "doc_id": text.doc_id, "text_id": text.text_id}
