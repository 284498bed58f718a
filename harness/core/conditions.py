"""What each setting of a run may change: its answers, which items there are, or neither.

One table for all that ask it: the manifest (what is written down), reuse (whose answers may be taken), saved results,
``touchstone compare`` and gates (what was asked alike). The options of the command line and the fields of ``Settings``
each have one row here.

    answers       an answer may depend on it: a condition, and reused answers must agree in it
    items         which items there are: a condition, as far as items are not known themselves
    checkpoint    which checkpoints there are, and what they are made of: fingerprints say that
    rounding      what is asked is the same, but numbers are rounded otherwise: reused answers must agree in it
    place         speed, and where things are kept or written

What an earlier release did not know of, it did as the default says: results of such runs still compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Role: TypeAlias = Literal["answers", "items", "checkpoint", "rounding", "place"]


class Setting(NamedTuple):
    """What a setting may change, and its value where nobody sets it."""

    role: Role
    default: Any = None


SETTINGS: Final[Mapping[str, Setting]] = {
    "shots": Setting("answers"),
    "seed": Setting("answers", 1234),
    "samples": Setting("answers", 1),
    "temperature": Setting("answers", 0.0),
    "top_p": Setting("answers", 1.0),
    "seq_len": Setting("answers"),
    "trust_remote_code": Setting("answers", False),
    "dtype": Setting("answers", "auto"),
    "chat": Setting("answers", "auto"),
    "max_new_tokens": Setting("answers"),
    "sandbox": Setting("answers", "bwrap"),
    "grader": Setting("answers", "exact"),
    "program_seconds": Setting("answers"),
    "limit": Setting("items"),
    "checkpoint": Setting("checkpoint"),
    "steps": Setting("checkpoint"),
    "base_model": Setting("checkpoint"),
    "device_kind": Setting("rounding"),
    "device": Setting("place"),
    "batch": Setting("place"),
    "speculative": Setting("place"),
    "unit": Setting("place"),
    "workers": Setting("place"),
    "data": Setting("place"),  # what is in it is a condition of its own, by hash
    "output": Setting("place"),
    "run_id": Setting("place"),
    "markdown": Setting("place"),
    "strict": Setting("place"),
    "fresh": Setting("place"),
}

OF_RESULTS: Final = ("version", "data", "shots", "few_shot", "template")
"""The conditions that a benchmark and its results tell; the others are settings of the run."""

_TOLD: Final = ("shots", "chat")
"""The settings whose outcome a result tells."""


def role_of(name: str) -> Role:
    """What a setting may change; one that is not known, of a later release, may change answers."""
    return SETTINGS[name].role if name in SETTINGS else "answers"


def is_condition(name: str) -> bool:
    """Whether results with different values of it were asked otherwise, or asked other items."""
    return name in OF_RESULTS or role_of(name) in ("answers", "items")


def condition_names() -> list[str]:
    """Every condition that a saved result may have."""
    return [*OF_RESULTS, *(name for name in SETTINGS if name not in OF_RESULTS and _of_settings(name))]


def of_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a manifest that are conditions, with the default of those that it does not name; without those
    whose outcome the results tell."""
    defaults = {name: one.default for name, one in SETTINGS.items()}
    return {name: value for name, value in {**defaults, **settings}.items() if _of_settings(name)}


def known_conditions(conditions: Mapping[str, Any], *, published: bool = False) -> dict[str, Any]:
    """The conditions of a saved result by today's rules, as JSON gives them back: without what is no condition, and
    with the default of a setting that it does not name. Of a ``published`` one nothing is known but what it says."""
    written = conditions if published else {**of_settings({}), **conditions}
    known: dict[str, Any] = json.loads(
        json.dumps({name: value for name, value in written.items() if is_condition(name)})
    )
    return known


def differing(
    mine: Mapping[str, Any], other: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The values that are not the same, by name, mine first; without those that are ``allowed`` to differ."""
    skipped = set(allowed)
    return {
        name: (mine.get(name), other.get(name))
        for name in dict.fromkeys((*mine, *other))
        if name not in skipped and mine.get(name) != other.get(name)
    }


def asked_otherwise(
    mine: Mapping[str, Any], other: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The conditions that are not the same, by name, where the items are known: then they say themselves which there
    are, and a setting that only chooses them is no other way of asking."""
    return differing(ways_of_asking(mine), ways_of_asking(other), allowed)


def ways_of_asking(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The known conditions without those that only choose items."""
    return {name: value for name, value in conditions.items() if role_of(name) != "items"}


def same_answers(mine: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a run with these settings may take the answers of one with the others, by their manifests."""
    defaults = {name: one.default for name, one in SETTINGS.items()}
    apart = differing({**defaults, **mine}, {**defaults, **other})
    return not any(role_of(name) in ("answers", "rounding") for name in apart)


def _of_settings(name: str) -> bool:
    return name not in _TOLD and name not in OF_RESULTS and is_condition(name)
