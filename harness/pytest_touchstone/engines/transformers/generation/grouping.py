"""Groups of prompts that are continued together, after a prefix that they share. Pure; runs no model.

``group`` and ``by_length`` decide which prompts make a lane. ``waves`` decides for the prompts of a lane what each
takes from another one, which begins with the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from pytest_touchstone.engines.transformers.scoring.prefix_tree import common

_LEAST_PROMPTS: Final = 4
"""The number of prompts for which a longer prefix of their own is worth batches of their own."""

_LEAST_TOKENS: Final = 64
"""The tokens by which such a prefix must be longer than the one they share with others."""


@dataclass(frozen=True, slots=True)
class Group:
    """Numbers of prompts, and how many tokens all of them share at the start; each has at least one more."""

    shared: int
    members: tuple[int, ...]


def group(prompts: Sequence[tuple[int, ...]]) -> list[Group]:
    """Return the prompts grouped by prefix, each prompt in one group; a group's members keep their first order."""
    order = sorted(range(len(prompts)), key=lambda number: prompts[number])
    groups, rest = _divide(prompts, order, 0)
    if rest:
        groups.append(_group(prompts, rest))
    found = [Group(one.shared, tuple(sorted(one.members))) for one in groups]
    return sorted(found, key=lambda one: one.members)


def by_length(one: Group, lengths: Sequence[int]) -> list[Group]:
    """Return the group in parts by the length of the prompts, given in tokens: no tail is much longer than another."""
    parts: list[list[int]] = []
    most = 0
    for number in sorted(one.members, key=lambda number: lengths[number]):
        tail = lengths[number] - one.shared
        if not parts or tail > most:
            parts.append([])
            most = 2 * tail + _LEAST_TOKENS
        parts[-1].append(number)
    return sorted((Group(one.shared, tuple(sorted(part))) for part in parts), key=lambda part: part.members)


def _divide(prompts: Sequence[tuple[int, ...]], order: list[int], base: int) -> tuple[list[Group], list[int]]:
    """Return the groups below a prefix of ``base`` tokens, and the prompts that are in none."""
    if len(order) < _LEAST_PROMPTS:
        return [], order
    shared = common(prompts[order[0]], prompts[order[-1]])
    ours = shared - base >= _LEAST_TOKENS
    groups: list[Group] = []
    rest: list[int] = []
    for _, run in groupby(order, key=lambda number: prompts[number][: shared + 1]):
        members = list(run)
        if len(members) == len(order):  # all are the same
            return ([_group(prompts, order)], []) if ours else ([], order)
        found, left = _divide(prompts, members, shared if ours else base)
        groups += found
        rest += left
    if ours and len(rest) >= _LEAST_PROMPTS:
        groups.append(_group(prompts, rest))
        rest = []
    return groups, rest


def _group(prompts: Sequence[tuple[int, ...]], order: Sequence[int]) -> Group:
    """Return sorted prompts as a group."""
    least = min(len(prompts[number]) for number in order)
    return Group(min(common(prompts[order[0]], prompts[order[-1]]), least - 1), tuple(order))


LEAST_SHARED: Final = 24
"""The tokens from which those of another prompt are copied: it takes a pass more, as long as some dozens of tokens."""


class CopySource(NamedTuple):
    """The text whose first tokens another takes, by its number among those given, and how many tokens it takes."""

    text: int
    shared: int


def waves(
    texts: Sequence[Sequence[int]], known: Sequence[Sequence[int]] = ()
) -> list[list[tuple[int, CopySource | None]]]:
    """Return the numbers of texts in waves, each with what it takes from an earlier wave, or from a ``known`` text.

    Known texts are numbered after the others. Of each text at least one token is left.
    """
    order = sorted(range(len(texts)), key=lambda number: list(texts[number]))
    depth: dict[int, int] = {}
    found: list[list[tuple[int, CopySource | None]]] = []
    for place, number in enumerate(order):
        own = texts[number]
        most = len(own) - 1
        best, level = CopySource(-1, 0), 0
        for other, text in enumerate(known, len(texts)):
            if (shared := min(most, common(own, text))) > best.shared:
                best = CopySource(other, shared)
        # The one before in this order shares most; of those that share as much the one computed first is taken.
        shared = most
        for before in reversed(order[:place]):
            shared = min(shared, common(own, texts[before]))
            if shared < max(LEAST_SHARED, best.shared):
                break
            if shared > best.shared or (level and depth[before] < level - 1):
                best, level = CopySource(before, shared), depth[before] + 1
        source = best if best.shared >= LEAST_SHARED else None
        depth[number] = level if source is not None else 0
        while len(found) <= depth[number]:
            found.append([])
        found[depth[number]].append((number, source))
    return found
