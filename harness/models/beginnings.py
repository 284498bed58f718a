"""Which prompts are continued together, behind a beginning that they share. Pure; runs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from harness.models.prefix_tree import common

_LEAST_PROMPTS: Final = 4
"""Prompts for which a longer beginning of their own is worth batches of their own."""

_LEAST_TOKENS: Final = 64
"""Tokens by which such a beginning is longer than the one they share with others."""


@dataclass(frozen=True, slots=True)
class Group:
    """Numbers of prompts, and how many tokens all of them begin with; each has at least one more."""

    shared: int
    members: tuple[int, ...]


def group(prompts: Sequence[tuple[int, ...]]) -> list[Group]:
    """The prompts by beginnings, each prompt in one group; a group's members are in their first order."""
    order = sorted(range(len(prompts)), key=lambda number: prompts[number])
    groups, rest = _divide(prompts, order, 0)
    if rest:
        groups.append(_group(prompts, rest))
    found = [Group(one.shared, tuple(sorted(one.members))) for one in groups]
    return sorted(found, key=lambda one: one.members)


def _divide(prompts: Sequence[tuple[int, ...]], order: list[int], base: int) -> tuple[list[Group], list[int]]:
    """Groups below a beginning of ``base`` tokens, and the prompts that are in none."""
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
    """Sorted prompts as a group."""
    least = min(len(prompts[number]) for number in order)
    return Group(min(common(prompts[order[0]], prompts[order[-1]]), least - 1), tuple(order))
