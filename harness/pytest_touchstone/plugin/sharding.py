"""``--eval-shard`` in a run: the items of the shard that this job scores.

Costs are guessed from the data alone, in tokens, since every job must come to the same answer without a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from pytest_touchstone.core.draws import TOUCHSTONE
from pytest_touchstone.core.requests import Generate, RunProgram
from pytest_touchstone.core.shard import Shard
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.plugin.batches import batch_key
from pytest_touchstone.plugin.collection import Given, checkpoint_of, given_items, result_of
from pytest_touchstone.plugin.options import Settings
from pytest_touchstone.plugin.placing import Placed, place
from pytest_touchstone.results.share import Share

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


def take_share(items: list[pytest.Item], shard: Shard, settings: Settings) -> tuple[Share, list[pytest.Item]]:
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
    share = Share(
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
        found.append(
            Placed(
                model=models.setdefault(info.model_key, info.name),
                result=f"{info.name}\0{result_of(item, given)}",
                prefix=batch_key(item.nodeid),
                together=example.sha256 if cluster is None else f"cluster {cluster}",
                cost=1 + size + texts * GENERATED + (0.0 if shared else shots),
                shared=shots if shared else 0.0,
                row=f"{info.name}\0{example.sha256}",
            )
        )
    return found
