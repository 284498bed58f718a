"""The settings of runs as conditions of results, by which results compare and the cache takes answers.

The table of settings (``core/settings.toml``) says what each affects; the manifest, the cache of answers,
saved results, ``touchstone compare`` and gates all follow it. An earlier release that lacked a setting did as its
default says, so results of such runs still compare.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pytest_touchstone.core.settings import Affects, settings_table

OF_RESULTS: Final = ("version", "data", "shots", "few_shot", "template")
"""The conditions that are known from a benchmark and its results; the others are settings of the run."""

_TOLD: Final = ("shots", "fewshot", "chat")
"""The settings whose outcome is known from a result."""


@functools.lru_cache(maxsize=1024)
def affects(name: str) -> Affects:
    """Return the area that a setting affects; an unknown one, of a later release, may affect answers."""
    row = settings_table().get(name)
    return row.affects if row is not None else "answers"


def is_condition(name: str) -> bool:
    """Return whether results with different values of it were asked differently, or asked other items."""
    return name in OF_RESULTS or affects(name) in ("answers", "items")


def condition_names() -> list[str]:
    """Every condition that a saved result may have."""
    return [
        *OF_RESULTS,
        *(name for name in settings_table() if name not in OF_RESULTS and _of_settings(name)),
    ]


def of_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a manifest that are conditions, with the default of those that it does not name; without those
    whose outcome the results tell."""
    return {name: value for name, value in _complete(settings).items() if _of_settings(name)}


def known_conditions(conditions: Mapping[str, Any], *, published: bool = False) -> dict[str, Any]:
    """The conditions of a saved result by today's rules, as JSON gives them back: without what is no condition, and
    with the default of a setting that it does not name. Of a ``published`` one only the stated conditions are
    known."""
    written = conditions if published else {**_defaults(), **conditions}
    known: dict[str, Any] = json.loads(
        json.dumps({name: value for name, value in written.items() if is_condition(name)})
    )
    return known


@functools.lru_cache(maxsize=1)
def _defaults() -> Mapping[str, Any]:
    return MappingProxyType(of_settings({}))


def differing(
    mine: Mapping[str, Any], other: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The values that differ, by name, mine first; without those that are ``allowed`` to."""
    skipped = set(allowed)
    return {
        name: (mine.get(name), other.get(name))
        for name in dict.fromkeys((*mine, *other))
        if name not in skipped and mine.get(name) != other.get(name)
    }


def asked_otherwise(
    mine: Mapping[str, Any], other: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The conditions that differ, by name, where the items are known: a setting that only chooses items is then no
    other way of asking."""
    return differing(ways_of_asking(mine), ways_of_asking(other), allowed)


def ways_of_asking(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The known conditions without those that only choose items."""
    return {name: value for name, value in conditions.items() if affects(name) != "items"}


def same_answers(mine: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a run with these settings may take the answers of one with the others, by their manifests."""
    apart = differing(_complete(mine), _complete(other))
    return not any(affects(name) in ("answers", "rounding") for name in apart)


def unlike(
    mine: Mapping[str, Any], other: Mapping[str, Any], *, but: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return the settings of two manifests, by name, that must agree where both are parts of one run, and do not."""
    apart = differing(_complete(mine), _complete(other), but)
    return {name: two for name, two in apart.items() if affects(name) in ("answers", "rounding", "items")}


def _complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a manifest, with the default of those that it does not name."""
    return {name: row.default for name, row in settings_table().items()} | dict(settings)


def _of_settings(name: str) -> bool:
    return name not in _TOLD and name not in OF_RESULTS and is_condition(name)
