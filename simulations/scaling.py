"""Runs of many replicas played from measured costs: wall time, idle replicas, and the driver's limit.

python -m simulations.scaling [--items 10000000] [--replicas 8 64 512] [--seed 1]

Two workloads. *items*: one checkpoint, ten million items that are scored. *series*: 200 checkpoints, 20 benchmarks of
2,000 items each. Five of a hundred replicas compute at a third of the speed. Each replica dies once in 48 hours on
average, at random, and is back after its process has started and the checkpoint is loaded.

The units are those that ``pytest_touchstone.engines.replicas.units`` plans: longest first, at least 2,000 tokens, a
fourth of each replica's share of what is left. A replica has two at most. Who holds which checkpoint is decided by the
product's own schedule (``simulations.scaling_series``). The driver is one thread: it sends units, takes answers, writes
the journal and reports items, one after the other.

``COSTS`` were measured by ``python -m perf replicas``. The speed of a replica is a free choice; what matters is what
it makes the driver do in a second.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pytest_touchstone.engines.replicas.units import LEAST, SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of the driver's CPU for an item, and for a unit; seconds on the way; bytes of an item's requests and
    answers, and in the journal; seconds of loading a GB.

    Of an item's, ``item_before`` are spent while replicas wait: pytest collects it and reports it, its generator
    starts. ``item_after`` are spent while they compute: its answers are read and journalled.
    """

    item_before: float
    item_after: float
    unit: float
    latency: float
    item_bytes: float
    journal_bytes: float
    load_per_gb: float
    network: float = 1e9


COSTS: Final = Costs(
    item_before=500e-6,
    item_after=45e-6,
    unit=450e-6,
    latency=0.9e-3,
    item_bytes=127.0,
    journal_bytes=648.0,
    load_per_gb=1.5,
)
"""Measured on a CPU by ``python -m perf replicas``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Replicas that compute ``speed`` tokens a second, of which some are slow, and that die now and then.

    ``dies_every`` is in seconds, ``restart`` the seconds until a new process loads.
    """

    count: int
    speed: float = 20_000.0
    slow_share: float = 0.05
    slow: float = 1 / 3
    dies_every: float = 48 * 3600.0
    restart: float = 20.0
    gigabytes: float = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A run: seconds, units sent, those sent again, bytes of the journal, and how often a checkpoint was loaded.

    ``idle`` is the share of the replicas' time in which they computed nothing that counts, ``driver`` the share of the
    time in which the driver worked.
    """

    wall: float
    idle: float
    driver: float
    units: int
    again: int
    journal: float
    loads: int = 0


def unit_sizes(costs: np.ndarray, replicas: int) -> list[tuple[int, float]]:
    """Return the items and the tokens of each unit of a batch whose items cost so many tokens, longest first."""
    total = np.cumsum(np.sort(costs)[::-1])
    found, begin, before = [], 0, 0.0
    while begin < len(total):
        size = max(LEAST, (total[-1] - before) / (SHARE * replicas))
        end = min(len(total), int(np.searchsorted(total, before + size)) + 1)
        found.append((end - begin, float(total[end - 1] - before)))
        begin, before = end, float(total[end - 1])
    return found


def lengths(count: int, draw: np.random.Generator, mean: float = 150.0) -> np.ndarray:
    """Return the tokens of so many items: as uneven as those of benchmarks (log-normal, sigma 0.7)."""
    return np.maximum(1.0, draw.lognormal(math.log(mean) - 0.7**2 / 2, 0.7, count))


def play_items(
    items: int,
    replicas: Replicas,
    *,
    batch: int = 4096,
    drivers: int = 1,
    costs: Costs = COSTS,
    seed: int = 1,
) -> Played:
    """Play one checkpoint's items; several drivers are shards of as many items and replicas each, side by side."""
    parts = [
        _play_part(
            items // drivers, replace(replicas, count=replicas.count // drivers), batch, costs, seed + n
        )
        for n in range(drivers)
    ]
    wall = max(one.wall for one in parts)
    busy = sum((1 - one.idle) * one.wall for one in parts)
    return Played(
        wall=wall,
        idle=1 - busy / (wall * drivers),
        driver=max(one.driver for one in parts),
        units=sum(one.units for one in parts),
        again=sum(one.again for one in parts),
        journal=sum(one.journal for one in parts),
    )


def _play_part(items: int, replicas: Replicas, batch: int, costs: Costs, seed: int) -> Played:
    from simulations.scaling_series import SeriesPlayer

    draw = np.random.default_rng((seed, 1))
    batches = [lengths(min(batch, items - begin), draw) for begin in range(0, items, batch)]
    return SeriesPlayer([batches], replicas, costs, seed).play()


def play_series(
    checkpoints: int,
    benchmarks: int,
    size: int,
    replicas: Replicas,
    *,
    shards: int = 1,
    costs: Costs = COSTS,
    seed: int = 1,
) -> Played:
    """Play a series of checkpoints, shared out by checkpoint; shards have a driver and replicas each."""
    from simulations.scaling_series import SeriesPlayer

    parts = []
    for number in range(shards):
        draw = np.random.default_rng((seed + number, 2))
        own = [[lengths(size, draw) for _ in range(benchmarks)] for _ in range(number, checkpoints, shards)]
        count = replicas.count // shards
        parts.append(SeriesPlayer(own, replace(replicas, count=count), costs, seed + number).play())
    wall = max(one.wall for one in parts)
    return Played(
        wall=wall,
        idle=1 - sum((1 - one.idle) * one.wall for one in parts) / (wall * shards),
        driver=max(one.driver for one in parts),
        units=sum(one.units for one in parts),
        again=sum(one.again for one in parts),
        journal=sum(one.journal for one in parts),
        loads=sum(one.loads for one in parts),
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--replicas", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    head = f"{'wall':>9} {'idle':>6} {'driver':>7} {'units':>9} {'again':>6} {'journal':>9} {'loads':>6}"
    print(f"{options.items:,} items\n{'replicas':>8} {'batch':>7} {'drivers':>7} {head}")
    for count in options.replicas:
        for drivers in sorted({1, max(1, count // 64), max(1, count // 8)}):
            for batch in (4096, 65_536):
                found = play_items(
                    options.items, Replicas(count=count), batch=batch, drivers=drivers, seed=options.seed
                )
                print(f"{count:8} {batch:7} {drivers:7} {shown(found)}", flush=True)
    print(
        f"\n{options.checkpoints} checkpoints, 20 benchmarks of 2,000\n{'replicas':>8} {'shards':>7} {head}"
    )
    for count in options.replicas:
        for shards in sorted({1, min(count, 8), min(count, options.checkpoints)}):
            found = play_series(
                options.checkpoints, 20, 2000, Replicas(count=count), shards=shards, seed=options.seed
            )
            print(f"{count:8} {shards:7} {shown(found)}", flush=True)


def shown(one: Played) -> str:
    """Return a line of the table."""
    return (
        f"{one.wall / 3600:8.2f}h {one.idle:6.1%} {one.driver:7.1%} {one.units:9,} {one.again:6,} "
        f"{one.journal / 1e9:7.1f}GB {one.loads or '':6}"
    )


if __name__ == "__main__":
    main()
