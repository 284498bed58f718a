"""The state of a batch while it runs: what its items have asked, what is answered, and the lengths of their texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pytest_touchstone.core.requests import Generate, Request, RunProgram


class Asked(NamedTuple):
    """Numbers of requests that are answered with scores, of texts, and of programs."""

    requests: int = 0
    texts: int = 0
    programs: int = 0


NOTHING: Final = Asked()


class Length(NamedTuple):
    """Tokens of a text, and whether it ended at its limit."""

    tokens: int
    at_limit: bool


class ItemSoFar(NamedTuple):
    """An item while its batch runs: whether it has ended, what it has asked and what of it is answered, and the lengths
    of its texts."""

    item: str
    ended: bool
    asked: Asked
    answered: Asked
    lengths: Sequence[Length]


class BatchSoFar(NamedTuple):
    """A batch while it runs: its items, those whose texts are at work with the tokens of each, and the item whose
    generator is computing now."""

    items: Sequence[ItemSoFar]
    growing: Sequence[tuple[str, int]]
    advancing: str | None


def counted(past: Asked, requests: Iterable[Request]) -> Asked:
    """Return the counts with those of some requests; of a text that is the same for all samples there is one."""
    scored, texts, programs = past
    for request in requests:
        if isinstance(request, Generate):
            texts += request.different
        elif isinstance(request, RunProgram):
            programs += 1
        else:
            scored += 1
    return Asked(scored, texts, programs)
