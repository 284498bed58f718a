"""``--eval-shard`` in a run: the items of the shard that this job scores.

Which item goes to which shard is the same on every machine, so that jobs that know nothing of each other agree. Costs
are guessed from the data alone, in tokens, without a model.

All models lie on one line, each as long as its items cost, which is cut into shards of one length. Within its model's
stretch each benchmark is spread over the whole length, in the order of its rows' hashes: a wrong guess of what one
benchmark costs against another does no harm, few shards load a model where there are many, and few rows move to another
shard when rows are added or a limit is raised, so that their scores are taken from the shard's own earlier run.

A prompt prefix would be computed once more in each part of its items, so where that costs much they stay together.
So do the rows of a cluster, and items of several benchmarks about one row, which is asked once.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import pytest

from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.few_shot_sampling import TOUCHSTONE
from pytest_touchstone.core.requests import Generate, RunProgram
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.plugin.batches import batch_key
from pytest_touchstone.plugin.driver import cluster_of
from pytest_touchstone.plugin.options import Settings
from pytest_touchstone.plugin.planned import PlannedItem, planned_items
from pytest_touchstone.results.merging import ShardShare

TEARING: Final = 10
"""The least cost of a part of a prefix's items, as a multiple of the prefix."""

BITS: Final = 64


class ShardAssignment(NamedTuple):
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


def assign_shards(items: Sequence[ShardAssignment], count: int) -> list[int]:
    """Return the shard of each item, from 0 on, of ``count`` shards."""
    shard_of_row: dict[str, int] = {}
    seen: set[str] = set()
    models = {
        model: [
            _pieces(items, result, seen) for _, result in _groups(items, members, lambda item: item.result)
        ]
        for model, members in _groups(items, range(len(items)), lambda item: item.model)
    }
    costs = {
        model: math.fsum(cost for pieces in results for _, cost in pieces)
        for model, results in models.items()
    }
    whole, start = math.fsum(costs.values()) or 1.0, 0.0
    shards = [0] * len(items)
    for model, results in models.items():
        for pieces in results:
            of_result, before = math.fsum(cost for _, cost in pieces) or 1.0, 0.0
            for members, cost in pieces:
                position = start + costs[model] * (before + cost / 2) / of_result
                before += cost
                for index in members:
                    shards[index] = min(int(count * position / whole), count - 1)
                    shard_of_row[items[index].row] = shards[index]
        start += costs[model]
    return [shard_of_row[item.row] if item.row else shard for item, shard in zip(items, shards, strict=True)]


def _groups(
    items: Sequence[ShardAssignment], members: Iterable[int], key: Callable[[ShardAssignment], str]
) -> list[tuple[str, list[int]]]:
    """Return the members by key, in an order that depends on the keys alone."""
    groups: dict[str, list[int]] = {}
    for index in members:
        groups.setdefault(key(items[index]), []).append(index)
    return sorted(groups.items(), key=lambda pair: (_hash(pair[0]), pair[0]))


def _pieces(
    items: Sequence[ShardAssignment], members: Sequence[int], seen: set[str]
) -> list[tuple[list[int], float]]:
    """Return what stays together of a result, each with its cost, in the order of hashes.

    Rows that are ``seen`` in another result are left out: they are where they are there.
    """
    fresh = [index for index in members if items[index].row not in seen]
    seen |= {items[index].row for index in fresh} - {""}
    parts: dict[str, int] = {}
    for prefix, same in _groups(items, fresh, lambda item: item.prefix):
        if shared := max(items[index].shared for index in same):
            cost = math.fsum(items[index].cost for index in same)
            parts[prefix] = max(1, int(min(len(same), cost / (TEARING * shared))))

    def piece_of(item: ShardAssignment) -> str:
        if item.prefix not in parts:
            return item.together
        return f"{item.prefix}\0{_hash(item.together) * parts[item.prefix] >> BITS}"

    pieces = _groups(items, fresh, piece_of)
    return [(piece, math.fsum(items[index].cost for index in piece)) for _, piece in pieces]


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=BITS // 8).digest()
    return int.from_bytes(digest, "big")


GENERATED: Final = 1000
"""The cost of a generated text, in tokens of a prompt: its tokens are few, but each takes a step of the model."""

PUBLISHING: Final = ("gate", "gate_mode", "gate_sequential", "baseline", "beside")
"""The settings that judge or hand out results of a whole run."""


def check_shard(settings: Settings, *, judged: bool) -> None:
    """Raise ``OptionError`` if a shard cannot be run with these settings.

    ``judged`` says that there is a gate or a baseline.
    """
    given = [name for name in PUBLISHING if settings.values[name]] + list(settings.trackers)
    if not given and not judged:
        return
    flag = f"--eval-{given[0].replace('_', '-')}" if given else "a baseline"
    after = "`touchstone export`" if given and given[0] in settings.trackers else "`touchstone merge --gate`"
    raise OptionError(
        f"--eval-shard {settings.shard}: {flag} needs the whole run, and this is a part; "
        f"leave it out, and use {after} when all parts are there"
    )


def select_shard(items: list[pytest.Item], settings: Settings) -> tuple[ShardShare, list[pytest.Item]]:
    """Remove the benchmark items of other shards; return the share that is left, and what was removed.

    Ordinary tests stay in every shard.
    """
    number, count = map(int, settings.shard.split("/"))
    benchmark_items = planned_items(items)
    placed = _shard_assignments(benchmark_items, settings)
    indices: dict[str, int] = {}
    dropped: dict[pytest.Item, None] = {}
    digest = hashlib.sha256()  # of the ids and rows of all items, in their order
    for index, (planned, shard) in enumerate(zip(benchmark_items, assign_shards(placed, count), strict=True)):
        text = f"{planned.nodeid}\0{planned.given.example.sha256}\n"
        digest.update(text.encode("utf-8", "backslashreplace"))
        if shard == number - 1:
            indices[planned.nodeid] = index
        else:
            dropped[planned.item] = None
    items[:] = [item for item in items if item not in dropped]
    cost = sum(item.cost for item in placed)
    share = ShardShare(
        number=number,
        count=count,
        items=len(benchmark_items),
        digest=digest.hexdigest(),
        checkpoints=list(dict.fromkeys(planned.info.name for planned in benchmark_items)),
        places=indices,
        cost=sum(placed[index].cost for index in indices.values()) / cost if cost else 0.0,
    )
    return share, list(dropped)


def _shard_assignments(items: Sequence[PlannedItem], settings: Settings) -> list[ShardAssignment]:
    """Return the items as they are placed: by names, never by paths, which other machines do not share."""
    models: dict[tuple[str, ...], str] = {}
    sizes: dict[int, float] = {}

    def tokens(example: Example) -> float:
        if id(example) not in sizes:
            # Of what is no plain data only the kind counts, which is the same everywhere.
            text = json.dumps(example.row, default=lambda value: type(value).__name__, skipkeys=True)
            sizes[id(example)] = len(text) / CHARACTERS_PER_TOKEN
        return sizes[id(example)]

    assignments = []
    for planned in items:
        info, spec, example = planned.info, planned.spec, planned.given.example
        shots = math.fsum(map(tokens, planned.given.loaded.shots.before.get(example.id, ())))
        shared = settings.fewshot == TOUCHSTONE
        texts = settings.sampling.samples * (Generate in spec.asks or RunProgram in spec.asks)
        cluster = cluster_of(spec, example)
        assignments.append(
            ShardAssignment(
                model=models.setdefault(info.model_key, info.name),
                result=sys.intern(f"{info.name}\0{spec.name}"),
                prefix=sys.intern(batch_key(planned.nodeid)),
                together=example.sha256 if cluster is None else f"cluster {cluster}",
                cost=1 + tokens(example) + texts * GENERATED + (0.0 if shared else shots),
                shared=shots if shared else 0.0,
                row=f"{info.name}\0{example.sha256}",
            )
        )
    return assignments
