"""``--eval-dry-run``: the sizes of a run, its time from a few items that are asked, and its settings; nothing is
scored or kept."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import Generate, Request
from pytest_touchstone.core.settings import DEFAULT, settings_table
from pytest_touchstone.plugin.batches import batch_key, needs_no_fixture
from pytest_touchstone.plugin.collection import Collection, checkpoint_of, given_items, given_of, result_of
from pytest_touchstone.plugin.execution import Execution, ProcessWork
from pytest_touchstone.plugin.progress import ProgressWriter, question, request_text, spread
from pytest_touchstone.plugin.xdist import Quarantine
from pytest_touchstone.reports.dry_run import DryRun, DryRunRow, DryRunTime, SettingRow
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.live import rough_tokens
from pytest_touchstone.results.usage import peak_bytes

if TYPE_CHECKING:
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.plugin.options import Settings

TRIED: Final = 4
"""Items of a batch that is asked for the time it takes."""

STARTED: Final = 16
"""Items of a benchmark whose requests are counted."""

LOOKED_AT: Final = 64
"""Items that are looked at together for those that are too long."""

SECONDS: Final = 20.0
"""The most that looking for them may take, for all benchmarks."""


def dry_run(
    items: Sequence[pytest.Item],
    collection: Collection,
    settings: Settings,
    size: int,
    engine: Callable[[CheckpointInfo], Engine],
) -> DryRun:
    """Return what a run of the items would ask; a few of them are asked, but of no served model."""
    with tempfile.TemporaryDirectory(prefix="touchstone-") as folder:
        work = ProcessWork(
            items=items,
            size=size,
            in_order=False,
            by_kind=settings.batch_items is None,
            journal=Journal(Path(folder), "dry"),
            quarantine=Quarantine(Path(folder) / "quarantine"),
            engine=engine,
            note_usage=lambda _: None,
            progress=ProgressWriter(Path(folder), "dry"),
            sandbox=collection.sandbox,
            settings=settings.model,
        )
        whole = Execution(work)
        infos = {(info := checkpoint_of(item)).name: info for item in items}
        rows = tuple(_rows(items, whole, settings, engine))
        local = [item for item in items if not checkpoint_of(item).served]
        tried = _tried(local, work, whole.sizes(local)) if local else None
    left_out = tuple(dict.fromkeys(collection.deselected))
    return DryRun(rows, tried, left_out, settings_rows(settings), _notes(infos.values()))


def _rows(
    items: Sequence[pytest.Item],
    execution: Execution,
    settings: Settings,
    engine: Callable[[CheckpointInfo], Engine],
) -> list[DryRunRow]:
    """Return a row for each benchmark and checkpoint."""
    members: dict[tuple[str, str], list[pytest.Item]] = {}
    for item, given in given_items(items):
        members.setdefault((checkpoint_of(item).name, result_of(item, given)), []).append(item)
    rows = [_row(*key, some, execution, settings) for key, some in members.items()]
    until = time.monotonic() + SECONDS
    return [
        _measured(row, some, execution, _measure(checkpoint_of(some[0]), settings, engine), until)
        for row, some in zip(rows, members.values(), strict=True)
    ]


def _measured(
    row: DryRunRow,
    items: Sequence[pytest.Item],
    execution: Execution,
    measure: Callable[[Sequence[Request]], list[int] | None] | None,
    until: float,
) -> DryRunRow:
    """Return the row with the items that are too long, as far as there is time to look."""
    info = checkpoint_of(items[0])
    if row.requests is None or measure is None:
        return row
    found: list[str] = []
    looked = 0
    for first in range(0, len(items), LOOKED_AT):
        if time.monotonic() > until:
            break
        some = [
            (item, longest)
            for item in items[first : first + LOOKED_AT]
            if (longest := _longest(item, execution))
        ]
        try:
            too_long = measure([longest for _, longest in some])
        except HarnessError:  # a tokenizer that cannot be had here
            return row
        if too_long is None:
            return row
        found += [_example(some[number][0]) for number in too_long]
        looked += len(items[first : first + LOOKED_AT])
    limit, cut = (info.served["limit"], info.served["cut"]) if info.served else (None, True)
    return replace(row, looked_at=looked, too_long=tuple(found), takes=limit or info.seq_len, cut=cut)


def _measure(
    info: CheckpointInfo, settings: Settings, engine: Callable[[CheckpointInfo], Engine]
) -> Callable[[Sequence[Request]], list[int] | None] | None:
    """Return what tells the requests that a checkpoint finds too long; None where nothing does."""
    if info.served:
        from pytest_touchstone.engines.http.engine import planner_of

        try:
            return planner_of(info, settings.model).too_long
        except HarnessError:
            return None
    return engine(info).too_long


def _longest(item: pytest.Item, execution: Execution) -> Request | None:
    """Return the longest request of an item's first question."""
    start, given = execution.starting(item), given_of(item)
    asked = (
        []
        if start is None or given is None
        else [given.loaded.asking.request(one) for one in question(start)]
    )
    return max(asked, key=lambda one: len(request_text(one)), default=None)


def _example(item: pytest.Item) -> str:
    given = given_of(item)
    assert given is not None
    return given.example.id


def _row(
    checkpoint: str, benchmark: str, items: Sequence[pytest.Item], execution: Execution, settings: Settings
) -> DryRunRow:
    given = given_of(items[0])
    assert given is not None
    row = DryRunRow(
        checkpoint=checkpoint, benchmark=benchmark, items=len(items), shots=given.loaded.shots.count
    )
    starts = [start for item in spread(items, STARTED) if (start := execution.starting(item)) is not None]
    asked = [[given.loaded.asking.request(one) for one in question(start)] for start in starts]
    asked = [one for one in asked if one]
    if not asked:
        return row
    share = len(items) / len(asked)
    requests = [one for some in asked for one in some]
    info = checkpoint_of(items[0])
    prompt, new, cost, exact = _tokens(requests, info, settings)
    return replace(
        row,
        requests=round(len(requests) * share),
        prompt_tokens=round(prompt * share),
        new_tokens=round(new * share),
        cost=None if cost is None else cost * share,
        exact=exact and len(asked) == len(items),
    )


def _tokens(
    requests: Sequence[Request], info: CheckpointInfo, settings: Settings
) -> tuple[int, int, float | None, bool]:
    """Return prompt tokens, new tokens at most, the cost where there is a price, and whether they are counted."""
    if info.served:
        from pytest_touchstone.engines.http.engine import planner_of
        from pytest_touchstone.engines.http.planning import estimate

        try:
            found = estimate(requests, planner_of(info, settings.model), settings.model.price)
            return found.prompt_tokens, found.new_tokens, found.cost, found.exact
        except HarnessError:
            pass  # its tokenizer cannot be had here: tokens are guessed
    prompt = sum(rough_tokens(request_text(one)) for one in requests)
    limit = settings.model.max_new_tokens
    new = sum(
        one.different * (limit or max(one.max_new_tokens, one.turns_max_new_tokens or 0))
        for one in requests
        if isinstance(one, Generate)
    )
    return prompt, new, None, False


def _tried(items: Sequence[pytest.Item], work: ProcessWork, sizes: Mapping[str, float]) -> DryRunTime | None:
    """Ask a batch of scores, and one of texts, of each checkpoint; return the time that all would take."""
    parts: dict[tuple[str, bool], dict[str, list[pytest.Function]]] = {}
    for item, given in given_items(items):
        if isinstance(item, pytest.Function) and needs_no_fixture(item):
            key = (checkpoint_of(item).name, Generate in given.loaded.spec.asks)
            parts.setdefault(key, {}).setdefault(batch_key(item.nodeid), []).append(item)
    chosen = [min(some.values(), key=len)[:TRIED] for some in parts.values()]
    if not chosen:
        return None
    execution = Execution(
        replace(work, items=[item for some in chosen for item in some], size=TRIED, by_kind=False)
    )
    seconds = 0.0
    try:
        for some, tried in zip(parts.values(), chosen, strict=True):
            work.engine(checkpoint_of(tried[0]))
            began = time.monotonic()
            for item in tried:
                execution.call(item)
            size = sum(sizes[key] * len(members) for key, members in some.items())
            seconds += (time.monotonic() - began) * size / (sizes[batch_key(tried[0].nodeid)] * len(tried))
    finally:
        execution.close()
    return DryRunTime(seconds, sum(map(len, chosen)), peak_bytes())


def settings_rows(settings: Settings) -> tuple[SettingRow, ...]:
    """Return every setting with its value and its origin."""
    recorded: dict[str, Any] = settings.recorded()
    return tuple(
        SettingRow(row.flag, recorded[name], settings.origins.get(name, DEFAULT))
        for name, row in settings_table().items()
        if row.option
    )


def _notes(infos: Iterable[CheckpointInfo]) -> tuple[str, ...]:
    """Return what served models cannot answer."""
    return tuple(f"{info.name}: {why}" for info in infos if (why := (info.served or {}).get("lacks")))
