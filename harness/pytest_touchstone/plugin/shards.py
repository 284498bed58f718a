"""``--eval-shard`` in a run: the items of the shard that this job scores.

Which item goes to which shard is the same on every machine, so that jobs that know nothing of each other agree. Costs
are guessed from the data alone, in tokens, without a model.

The items of a result (a checkpoint's benchmark) are spread over all shards, whatever its items cost, so that a wrong
guess of what one benchmark costs against another does no harm. They are cut into pieces by hashes of their rows, not
by their order. A piece goes to the shard that its own hash names, or, where that one is full, to the next.

So two things pull at a piece: the balance wins over the hash, but only beyond ``SLACK``. Within it a piece stays where
it is when rows are added or a limit is raised, and its scores are taken from the shard's own earlier run.

Two things are not torn where that costs much. A prompt prefix would be computed once more in each piece, so a piece
has many times its cost. A checkpoint would be loaded once more in each shard, so where there are many checkpoints,
each has few shards, most of them one. The rows of a cluster always stay together, and so do items of several
benchmarks about one row, which is asked once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest

from pytest_touchstone.core.draws import TOUCHSTONE
from pytest_touchstone.core.requests import Generate, RunProgram
from pytest_touchstone.core.shard import Shard
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.plugin.batches import batch_key
from pytest_touchstone.plugin.benchmark_items import BenchmarkItem
from pytest_touchstone.plugin.collection import Given, checkpoint_of, given_items, result_of
from pytest_touchstone.plugin.options import Settings
from pytest_touchstone.results.merging import ShardShare

SLACK: Final = 0.04
"""The part of its share by which a shard may exceed it before a piece goes elsewhere."""

PIECES: Final = 32
"""The pieces of a result in each shard, about."""

TEARING: Final = 10
"""The least cost of a piece as a multiple of the prefix that all of its items share."""

BITS: Final = 64


class Placed(NamedTuple):
    """An item to place.

    Its ``model`` is loaded once for all of its ``result``s. Items with one ``prefix`` share the beginning of their
    prompts, of the cost ``shared``; those that agree in ``together`` too are never torn. A ``row`` that several results
    have costs once.
    """

    model: str
    result: str
    prefix: str
    together: str
    cost: float
    shared: float = 0.0
    row: str = ""


class _Piece(NamedTuple):
    key: str
    items: list[int]
    cost: float


@dataclass(slots=True)
class _Load:
    """The costs of all shards so far, and the most that each may have."""

    most: float
    costs: list[float]
    of_result: list[float] = field(default_factory=list)

    def has_room(self, shard: int, cost: float) -> bool:
        return self.costs[shard] + cost <= self.most


def place(items: Sequence[Placed], count: int) -> list[int]:
    """Return the shard of each item, from 0 on, of ``count`` shards."""
    found = [0] * len(items)
    if count == 1:
        return found
    models = _by(items, range(len(items)), lambda one: one.model)
    once: dict[str | int, float] = {}
    for index, one in enumerate(items):
        once[one.row or index] = max(one.cost, once.get(one.row or index, 0.0))
    load = _Load((1 + SLACK) * math.fsum(once.values()) / count, [0.0] * count)
    rows: dict[str, int] = {}
    wide = min(count, -(-2 * count // max(1, len(models))))
    for model, members in _dearest(models, items):
        order = list(_probing(model, count))
        homes = sorted(order[:wide])
        for _, own in _dearest(_by(items, members, lambda one: one.result), items):
            for index in own:  # a row that another result has too is asked once where both are
                found[index] = rows.get(items[index].row, 0)
            fresh = [index for index in own if items[index].row not in rows]
            for piece, shard in _placed_pieces(fresh, items, load, homes, order):
                for index in piece.items:
                    found[index] = shard
            rows |= {items[index].row: found[index] for index in fresh if items[index].row}
    return found


def _by(
    items: Sequence[Placed], members: Iterable[int], key: Callable[[Placed], str]
) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index in members:
        found.setdefault(key(items[index]), []).append(index)
    return found


def _dearest(groups: Mapping[str, list[int]], items: Sequence[Placed]) -> list[tuple[str, list[int]]]:
    """Return the groups, the dearest first, in an order that does not depend on that of the items."""

    def place_of(name: str) -> tuple[int, int, str]:
        return -_size(math.fsum(items[index].cost for index in groups[name])), _hash(name), name

    return [(name, groups[name]) for name in sorted(groups, key=place_of)]


def _placed_pieces(
    own: Sequence[int], items: Sequence[Placed], load: _Load, homes: Sequence[int], order: Sequence[int]
) -> Iterator[tuple[_Piece, int]]:
    """Yield the pieces of a result, each with its shard; ``homes`` are those of its model, first in its ``order``."""
    pieces = _pieces(own, items, len(homes))
    load.of_result = [0.0] * len(load.costs)
    share = (1 + SLACK) * math.fsum(one.cost for one in pieces) / len(homes)
    for piece in sorted(pieces, key=lambda one: (-_size(one.cost), _hash(one.key), one.key)):
        shard = _shard(piece, share, load, homes, order)
        load.costs[shard] += piece.cost
        load.of_result[shard] += piece.cost
        yield piece, shard


def _shard(piece: _Piece, share: float, load: _Load, homes: Sequence[int], order: Sequence[int]) -> int:
    for number in _probing(piece.key, len(homes)):
        shard = homes[number]
        if load.has_room(shard, piece.cost) and load.of_result[shard] + piece.cost <= share:
            return shard
    if open_ := [shard for shard in homes if load.has_room(shard, piece.cost)]:
        return min(open_, key=lambda shard: (load.of_result[shard], load.costs[shard], shard))
    # All homes of the model are full: it is loaded in one shard more.
    elsewhere = (shard for shard in order if load.has_room(shard, piece.cost))
    return next(elsewhere, min(order, key=lambda shard: (load.costs[shard], shard)))


def _pieces(own: Sequence[int], items: Sequence[Placed], count: int) -> list[_Piece]:
    """Return the pieces of a result that ``count`` shards have."""
    prefixes = _by(items, own, lambda one: one.prefix)
    most = math.fsum(items[index].cost for index in own) / (count * PIECES)
    return [piece for prefix, members in prefixes.items() for piece in _cut(prefix, members, items, most)]


def _cut(prefix: str, members: Sequence[int], items: Sequence[Placed], most: float) -> Iterable[_Piece]:
    """Return the items of a prefix in pieces, as a rule of the cost ``most`` at most.

    A piece has the items whose hashes lie in an interval, whose beginning is its name: it keeps that when it is cut in
    two, and so does one of the halves.
    """
    cost = math.fsum(items[index].cost for index in members)
    least = TEARING * max(items[index].shared for index in members)
    bits = 0
    while bits < 24 and cost / 2**bits > most and cost / 2 ** (bits + 1) >= least:
        bits += 1
    found: dict[int, list[int]] = {}
    for index in members:
        found.setdefault(_hash(items[index].together) >> (BITS - bits), []).append(index)
    for number, own in found.items():
        key = f"{prefix}\0{number << (BITS - bits)}"
        yield _Piece(key, own, math.fsum(items[index].cost for index in own))


def _size(cost: float) -> int:
    """Return the power of two to which a cost is rounded: a little more of it changes no order."""
    return round(math.log2(cost)) if cost > 0 else -1074


def _probing(key: str, count: int) -> Iterator[int]:
    """Yield all numbers below ``count`` in an order that only the key says."""
    start, step = _hash(key), _hash(f"{key}\0step") % count or 1
    while math.gcd(step, count) > 1:
        step = step % count + 1
    for number in range(count):
        yield (start + number * step) % count


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=BITS // 8).digest()
    return int.from_bytes(digest, "big")


GENERATED: Final = 1000
"""The cost of a generated text, in tokens of a prompt: its tokens are few, but each takes a step of the model."""

PUBLISHING: Final = ("gate", "gate_mode", "gate_plan", "gate_sequential", "baseline", "beside")
"""The settings that judge or hand out results of a whole run."""


def refused(settings: Settings, judged: bool) -> str | None:
    """Return why a shard cannot be run with these settings; ``judged`` says that there is a gate or a baseline."""
    given = [name for name in PUBLISHING if settings.values[name]] + list(settings.trackers)
    if not given and not judged:
        return None
    flag = f"--eval-{given[0].replace('_', '-')}" if given else "a baseline"
    after = "`touchstone track`" if given and given[0] in settings.trackers else "`touchstone merge --gate`"
    return (
        f"--eval-shard {settings.shard}: {flag} needs the whole run, and this is a part; "
        f"leave it out, and use {after} when all parts are there"
    )


def take_share(
    items: list[pytest.Item], shard: Shard, settings: Settings
) -> tuple[ShardShare, list[pytest.Item]]:
    """Take out the benchmark items of other shards; return the share that is left, and what was taken out.

    Ordinary tests stay in every shard.
    """
    own = list(given_items(items))
    placed = _placed(own, settings)
    number_of = place(placed, shard.count)
    places: dict[str, int] = {}
    dropped = []
    for index, (item, _) in enumerate(own):
        if number_of[index] == shard.number - 1:
            places[item.nodeid] = index
        else:
            dropped.append(item)
    others = set(dropped)
    items[:] = [item for item in items if item not in others]
    whole = sum(one.cost for one in placed)
    share = ShardShare(
        number=shard.number,
        count=shard.count,
        items=len(own),
        digest=_digest(own),
        checkpoints=list(dict.fromkeys(checkpoint_of(item).name for item, _ in own)),
        places=places,
        cost=sum(placed[index].cost for index in places.values()) / whole if whole else 0.0,
    )
    return share, dropped


def _digest(own: Sequence[tuple[pytest.Item, Given]]) -> str:
    """Return a hash of the ids and rows of all items, in their order."""
    found = hashlib.sha256()
    for item, given in own:
        found.update(f"{item.nodeid}\0{given.example.sha256}\n".encode("utf-8", "backslashreplace"))
    return found.hexdigest()


def _tokens(row: Mapping[str, Any]) -> float:
    """Return a row's size in tokens; of what is no plain data only the kind counts, which is the same everywhere."""
    return len(json.dumps(row, default=lambda one: type(one).__name__, skipkeys=True)) / CHARACTERS_PER_TOKEN


def _placed(own: Sequence[tuple[pytest.Item, Given]], settings: Settings) -> list[Placed]:
    """Return the items as they are placed: by names, never by paths, which other machines do not share."""
    models: dict[tuple[str, ...], str] = {}
    once: dict[str, str] = {}
    sizes: dict[int, float] = {}
    found = []
    for item, given in own:
        info, spec, example = checkpoint_of(item), given.loaded.spec, given.example
        if (size := sizes.get(id(example))) is None:
            size = sizes[id(example)] = _tokens(example.row)
        shots = 0.0
        for one in given.loaded.shots.before.get(example.id, ()):
            if (tokens := sizes.get(id(one))) is None:
                tokens = sizes[id(one)] = _tokens(one.row)
            shots += tokens
        shared = settings.fewshot == TOUCHSTONE
        texts = settings.sampling.samples * (Generate in spec.asks or RunProgram in spec.asks)
        cluster = example.row.get(spec.cluster) if spec.cluster else None
        result, prefix = f"{info.name}\0{result_of(item, given)}", batch_key(item.nodeid)
        if isinstance(item, BenchmarkItem):
            item.rest()  # most are of other shards, and pytest has had each make its parameters
        found.append(
            Placed(
                model=models.setdefault(info.model_key, info.name),
                result=once.setdefault(result, result),
                prefix=once.setdefault(prefix, prefix),
                together=example.sha256 if cluster is None else f"cluster {cluster}",
                cost=1 + size + texts * GENERATED + (0.0 if shared else shots),
                shared=shots if shared else 0.0,
                row=f"{info.name}\0{example.sha256}",
            )
        )
    return found
