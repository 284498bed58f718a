"""The sizes of what a run will ask, before it is asked: a few items of each part are started as far as their first
question, whose texts are measured.

Nothing of it is answered, and the generators are closed again. Only shipped benchmarks are started, which have no
effects; other people's functions, and what raises, are left without a size until their items are asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import pytest

from pytest_touchstone.core.requests import (
    REQUEST_KINDS,
    FillMask,
    Generate,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.prefix_tree import common
from pytest_touchstone.plugin.batches import batch_key
from pytest_touchstone.plugin.collection import checkpoint_of, given_of, result_of
from pytest_touchstone.plugin.dispatch import CAUGHT
from pytest_touchstone.plugin.progress import PartOf
from pytest_touchstone.results.live import Part, Workload, rough_tokens

STARTED: Final = 8
"""Items of a part that are started."""

SECONDS: Final = 1.0
"""The most that all of it may take; parts that come too late have no sizes."""

USUAL_LIMIT: Final = 256
"""New tokens of a text at most, where it is not known before it is asked for."""

Start: TypeAlias = Callable[[], Any]
"""Starts an item's generator."""


def workload_of(
    items: Iterable[pytest.Item],
    starting: Callable[[pytest.Item], Start | None],
    settings: ModelSettings,
    left_out: Container[str] = (),
) -> tuple[Workload, PartOf]:
    """Return the sizes of what the items will ask, and what tells the number of each item's part.

    ``starting`` gives what starts an item, None where it cannot be started yet. Items that are ``left_out`` of these
    have no part.
    """
    members: dict[str, list[pytest.Item]] = {}
    for item in items:
        members.setdefault(batch_key(item.nodeid), []).append(item)
    numbers = {key: number for number, key in enumerate(members)}
    until = time.monotonic() + SECONDS
    parts = tuple(_part(some, starting, settings.max_new_tokens, until) for some in members.values())
    infos = [checkpoint_of(some[0]) for some in members.values()]
    load = Workload(parts=parts, parameters={info.name: info.parameters for info in infos})
    return load, lambda item: None if item in left_out else numbers.get(batch_key(item))


def _part(
    items: Sequence[pytest.Item],
    starting: Callable[[pytest.Item], Start | None],
    limit: int | None,
    until: float,
) -> Part:
    """Return the part of items that are alike; without sizes where it is too late for them."""
    given = given_of(items[0])
    assert given is not None
    asks = given.loaded.spec.asks
    starts = (starting(one) for one in spread(items))
    questions = (question(start) for start in starts if start is not None and time.monotonic() < until)
    asking = given.loaded.asking  # of the demonstration
    asked = [[asking.request(one) for one in question] for question in questions if question]
    unknown = {"texts": 1.0, "limit": limit or USUAL_LIMIT} if Generate in asks else {}
    return Part(
        checkpoint=checkpoint_of(items[0]).name,
        benchmark=result_of(items[0], given),
        items=len(items),
        programs=RunProgram in asks,
        **(
            size_of(asked, limit, apart=bool({FillMask, PseudoLoglikelihood} & set(asks)))
            if asked
            else unknown
        ),
    )


def size_of(
    questions: Sequence[Sequence[Request]], limit: int | None = None, *, apart: bool = False
) -> dict[str, Any]:
    """Return the sizes per item of a part, from the first questions of some of its items; none of them is empty.

    The ``limit`` of new tokens goes before the requests' own.
    """
    generated = [one for question in questions for one in question if isinstance(one, Generate)]
    texts = [sorted({request_text(one) for one in question}) for question in questions]
    shared = 0 if apart or len(questions) < 2 else common(min(map(min, texts)), max(map(max, texts)))
    prefix = min(texts[0])[:shared]
    own = [_distinct(some, shared, apart=apart) for some in texts]
    many = len(questions)
    return {
        "tokens": sum(own) / many,
        "shared": float(rough_tokens(prefix)),
        "texts": sum(one.different for one in generated) / many,
        "limit": max(
            (limit or max(one.max_new_tokens, one.turns_max_new_tokens or 0) for one in generated), default=0
        ),
    }


def _distinct(texts: Sequence[str], shared: int, *, apart: bool) -> int:
    """Return the tokens of an item's texts, in order, behind the ``shared`` characters, and one where each ends.

    Whatever two of them begin with counts once, unless they are computed ``apart``.
    """
    before = ["", *texts]
    known = [shared if apart else max(shared, common(*pair)) for pair in zip(before, texts, strict=False)]
    return sum(rough_tokens(text[at:]) + 1 for text, at in zip(texts, known, strict=True))


def spread(items: Sequence[Any], most: int = STARTED) -> list[Any]:
    """Return as many items, spread evenly."""
    step = len(items) / most
    return list(items) if step <= 1 else [items[int(number * step)] for number in range(most)]


def question(start: Start) -> list[Request]:
    """Return an item's first question to the model; nothing where there is none."""
    generator: Generator[Any, Any, Any] | None = None
    try:
        generator = start()
        yielded = next(generator)
        asked = [yielded] if isinstance(yielded, REQUEST_KINDS) else list(yielded)
        return [one for one in asked if isinstance(one, REQUEST_KINDS) and not isinstance(one, RunProgram)]
    except (*CAUGHT, StopIteration):
        return []  # told when it is the item's turn
    finally:
        if generator is not None:
            with suppress(*CAUGHT):
                generator.close()


def request_text(request: Request) -> str:
    """Return the text of a request that goes through the model."""
    match request:
        case Loglikelihood(context, continuation):
            return context + continuation
        case RollingLoglikelihood(text) | FillMask(text) | PseudoLoglikelihood(text):
            return text
        case Generate(prompt):
            return prompt
        case RunProgram():
            return ""
