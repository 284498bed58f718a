"""Sets that are iterated in the order of another one.

CPython's sets have no order of their own: it follows from the size of the table, the hashes, and the order in which
members came (Objects/setobject.c, set_add_entry, set_table_resize, set_merge). So a copy gets a table of the same
size, and its members come in an order in which each finds the place that it has in the other. So it nearly always goes
on alike when members are added. What is found is tried, so another kind of set costs only the order.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

LISTED, PRESIZED, UNKNOWN = 0, 1, 2
"""Tables that grow as members are added, and that have room for all of them from the beginning, as copies do; and that
of a set in another order. Greater numbers are sizes."""

_LEAST: Final = 8
_ENTRY: Final = 16
_LINEAR: Final = 9
_SHIFT: Final = 5
"""setobject.c: PySet_MINSIZE, the bytes of an entry, LINEAR_PROBES, PERTURB_SHIFT."""

_LARGEST: Final = 2**20
"""The largest table that is made with fewer members than it is meant for."""

_FILLER: Final = 2**52
_MOST_PROBES: Final = 64
_MOST_MEMBERS: Final = 5000
_MOST_DRAWN: Final = 500
_MOST_PLACES: Final = 24
_MOST_STEPS: Final = 8
"""Steps of the search for places, for each member."""

_GAPS: Final = (0, 1, 4, 16, 256)
"""Numbers of places that may have had other members before."""

_AnySet = set[Any] | frozenset[Any]


class Recipe(NamedTuple):
    """A kind of table, places in it that others have had, and members in the order in which they come."""

    table: int
    left: list[int]
    members: list[Any]


def recipe(value: Any) -> Recipe:
    """Return a recipe such that ``built`` makes a set with the order of this one.

    Where none is found, its table is ``UNKNOWN``, and it makes an equal set. That is seldom, and only so for sets from
    which members have been removed, or of very many.
    """
    kind: type[Any] = frozenset if isinstance(value, frozenset) else set
    members, table = list(kind.__iter__(value)), _table(value)
    for how in (LISTED, PRESIZED):
        if _same(built(kind, Recipe(how, [], members)), members, table):
            return Recipe(how, [], members)
    for gaps in _GAPS if len(members) <= _MOST_MEMBERS else ():
        for tried in _tried(members, table, gaps):
            if _same(built(kind, tried), members, table):
                return tried
    if kind is frozenset:  # of its table, no place can be kept free for a while
        for tried in _drawn(members):
            if _same(built(kind, tried), members, table):
                return tried
    return Recipe(UNKNOWN if members else LISTED, [], members)


def _tried(members: list[Any], table: int, gaps: int) -> Iterator[Recipe]:
    """Yield recipes of which one may do; members that have been removed leave gaps."""
    for places in itertools.islice(_places(members, table, gaps), _MOST_PLACES):
        left, order = _came(members, places, table)
        if order and not left:
            yield Recipe(LISTED, left, order)
        if order and table <= _LARGEST:
            yield Recipe(table, left, order)


def _drawn(members: list[Any]) -> Iterator[Recipe]:
    """Yield recipes with members in any order, which do where few of them are in each other's way."""
    drawn, order = random.Random(0), list(members)
    for _ in range(_MOST_DRAWN if len(members) <= _MOST_MEMBERS else 0):
        drawn.shuffle(order)
        yield Recipe(LISTED, [], list(order))
        yield Recipe(PRESIZED, [], list(order))


def built(kind: type[Any], given: Recipe) -> Any:
    """Return the set of a recipe, ``kind`` being ``set`` or ``frozenset``.

    Raises ``ValueError`` for a table that is none.
    """
    how, left, members = given
    if how in (LISTED, UNKNOWN):
        return kind(members)
    if how == PRESIZED:
        return kind(dict.fromkeys(members))
    if not _LEAST <= how <= _LARGEST or how & (how - 1) or len(left) > how:
        raise ValueError(f"no table of a set has {how} entries")
    # For so many members a set gets a table of this size; the smallest it has from the beginning.
    first = 0 if how == _LEAST else max(how // 4, 5)
    if kind is frozenset:
        early = dict.fromkeys(members[:first])
        # Only a union of sets gives it a table for more members than it has.
        return frozenset().union(early, members[first:] if len(members) >= first else early)
    fillers = [_FILLER + place for place in left]
    if len(members) + len(left) < first:
        taken = _filled(members, left, how)
        free = (_FILLER + place for place in range(how) if place not in taken)
        fillers += itertools.islice(free, first - len(members) - len(left))
    found = set(dict.fromkeys([*fillers, *members][:first]))
    found.update(list([*fillers, *members][first:]))
    for filler in fillers:
        found.discard(filler)
    return found


def _same(made: _AnySet, members: Sequence[Any], table: int) -> bool:
    same = len(made) == len(members) and all(map(operator.is_, made, members))
    return same and _table(made) == table


def _table(value: _AnySet) -> int:
    kind = frozenset if isinstance(value, frozenset) else set
    return max(_LEAST, (kind.__sizeof__(value) - kind().__sizeof__()) // _ENTRY)


def _probes(member: Hashable, mask: int) -> Iterator[int]:
    """Yield the places at which a member is looked for, in turn."""
    perturb = hash(member) & (2**64 - 1)
    place = perturb & mask
    while True:
        yield from range(place, place + (_LINEAR if place + _LINEAR <= mask else 0) + 1)
        perturb >>= _SHIFT
        place = (place * 5 + 1 + perturb) & mask


def _filled(members: Sequence[Any], left: Sequence[int], table: int) -> set[int]:
    """Return the places that are taken when members come in this order."""
    taken = set(left)
    for member in members:
        taken.add(next(place for place in _probes(member, table - 1) if place not in taken))
        if 5 * len(taken) >= 3 * table:
            raise ValueError("a table that is too small for its members")
    return taken


def _came(members: Sequence[Any], places: Sequence[int], table: int) -> tuple[list[int], list[Any]]:
    """Return the places that others must have had, and an order in which members may have come to theirs, empty where
    there is none."""
    late = [(one, place, _before(one, place, table)) for one, place in zip(members, places, strict=True)]
    left = {probe for _, _, before in late for probe in before} - set(places)
    order: list[Any] = []
    taken = set(left)
    while late:
        ready = [(one, place) for one, place, before in late if taken.issuperset(before)]
        if not ready:
            return [], []
        order += [one for one, _ in ready]
        taken |= {place for _, place in ready}
        late = [each for each in late if each[1] not in taken]
    return sorted(left), order


def _before(member: Hashable, place: int, table: int) -> list[int]:
    """Return the places that must have been taken for a member to get this one."""
    found = []
    for probe in _probes(member, table - 1):
        if probe == place:
            break
        found.append(probe)
    return found


def _places(members: Sequence[Any], table: int, most: int) -> Iterator[list[int]]:
    """Yield rising places such that each member has one, and those at which it is looked for before are taken, but for
    ``most`` of them."""
    chosen: list[int] = []
    taken: set[int] = set()
    trials = [_possible(member, -1, table) for member in members[:1]]
    before: list[set[int]] = [set()]  # the places that must be taken, for each trial
    for _ in range(_MOST_STEPS * len(members) + 1000):
        if not trials:
            break
        place, sought = next(trials[-1], (-1, set()))
        if place < 0:
            trials.pop()
            before.pop()
            taken.discard(chosen.pop() if chosen else -1)
            continue
        open_ = (before[-1] | sought) - taken - {place}
        last = len(chosen) + 1 == len(members)
        if len(open_) > most and (last or sum(one < place for one in open_) > most):
            continue
        if last:
            yield [*chosen, place]
            continue
        chosen.append(place)
        taken.add(place)
        before.append(open_)
        trials.append(_possible(members[len(chosen)], place, table))


def _possible(member: Hashable, last: int, table: int) -> Iterator[tuple[int, set[int]]]:
    """Yield the places behind ``last`` that a member may have, each with those at which it is looked for before."""
    sought: set[int] = set()
    for probe, _ in zip(_probes(member, table - 1), range(_MOST_PROBES), strict=False):
        if probe > last:
            yield probe, set(sought)
        sought.add(probe)
