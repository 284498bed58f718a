"""``--eval-dry-run``: the sizes of a run's requests, and its settings; nothing is run or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.requests import (
    Generate,
    Request,
)
from pytest_touchstone.core.settings import DEFAULT, settings_table
from pytest_touchstone.core.text import estimate_tokens
from pytest_touchstone.plugin.collection import CollectedExample, Collection
from pytest_touchstone.plugin.driver import TEXT_FIELDS
from pytest_touchstone.plugin.planned import PlannedItem, planned_items
from pytest_touchstone.reports.plan import DryRun, DryRunRow, SettingRow

if TYPE_CHECKING:
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.plugin.options import Settings

SAMPLE: Final = 1000
"""The items of a benchmark, spread evenly, that are started for their sizes."""


def dry_run(
    items: Sequence[pytest.Item],
    collection: Collection,
    settings: Settings,
    engine: Callable[[CheckpointInfo], Engine],
) -> DryRun:
    """Return what a run of the items would ask."""
    members: dict[tuple[str, str], list[PlannedItem]] = {}
    for planned in planned_items(items):
        members.setdefault(planned.series, []).append(planned)
    infos = {some[0].info.name: some[0].info for some in members.values()}
    rows = [
        _row(DryRunRow(checkpoint=name, benchmark=benchmark, items=len(some)), some, settings, engine)
        for (name, benchmark), some in members.items()
    ]
    lacks = [f"{info.name}: {why}" for info in infos.values() if (why := (info.served or {}).get("lacks"))]
    givens = {benchmark: some[0].given for (_, benchmark), some in members.items()}
    return DryRun(rows, list(dict.fromkeys(collection.deselected)), list(_settings(settings, givens)), lacks)


def _row(
    row: DryRunRow,
    items: Sequence[PlannedItem],
    settings: Settings,
    engine: Callable[[CheckpointInfo], Engine],
) -> DryRunRow:
    """Return the sizes of a benchmark's questions to a checkpoint, scaled up from a sample of the items."""
    info = items[0].info
    row.shots = items[0].given.loaded.shots.count
    step = max(1.0, len(items) / SAMPLE)
    sample = [items[int(number * step)] for number in range(min(len(items), SAMPLE))]
    asked = [(planned.given.example.id, first) for planned in sample if (first := planned.first_requests())]
    if not asked:
        return row
    row.sampled, share = len(asked), len(items) / len(asked)
    requests = [request for _, some in asked for request in some]
    row.requests = round(share * sum(getattr(request, "different", 1) for request in requests))
    longest = [max(some, key=lambda request: len(_request_text(request))) for _, some in asked]
    prompt = sum(estimate_tokens(_request_text(request)) for request in requests)
    limit = settings.model.max_new_tokens
    new = sum(
        request.different * (limit or max(request.max_new_tokens, request.turns_max_new_tokens or 0))
        for request in requests
        if isinstance(request, Generate)
    )
    row.takes, too_long = info.seq_len, []
    if info.served:
        from pytest_touchstone.engines.http.engine import planner_of
        from pytest_touchstone.engines.http.planning import estimate

        row.takes, row.cut = info.served["limit"] or info.seq_len, info.served["cut"]
        with suppress(HarnessError):  # without its tokenizer, tokens are guessed
            planner = planner_of(info, settings.model)
            cost = estimate(requests, planner, settings.model.price)
            prompt, new, row.exact = cost.prompt_tokens, cost.new_tokens, cost.exact and share == 1
            row.cost = None if cost.cost is None else cost.cost * share
            too_long = planner.too_long(longest)
    else:
        too_long = engine(info).too_long(longest) or []
    row.prompt_tokens, row.new_tokens = round(prompt * share), round(new * share)
    row.too_long = [asked[index][0] for index in too_long]
    return row


def _settings(settings: Settings, givens: dict[str, CollectedExample]) -> Iterator[SettingRow]:
    """Yield the settings that were given, those of the run first, then those of its benchmarks."""
    recorded: dict[str, Any] = settings.recorded()
    table = settings_table()
    for name, row in table.items():
        origin = settings.origins.get(name, DEFAULT)
        if row.option and origin != DEFAULT and name != "dry_run":
            yield SettingRow(row.flag, recorded[name], origin)
    origin = "demonstration" if settings.file is None else shown_path(settings.file.path)
    for benchmark, given in givens.items():
        for name, value in given.loaded.asking.settings.items():
            if table[name].option:
                yield SettingRow(f"{table[name].flag} of {benchmark}", value, origin)


def _request_text(request: Request) -> str:
    """Return the text of a request that goes through the model."""
    return "".join(getattr(request, name) for name in TEXT_FIELDS[type(request)])
