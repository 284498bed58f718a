"""Saved and imported results as contenders: by the checkpoint's name, path or fingerprint.

Of each benchmark the newest entry counts. Checkpoints of one name but different fingerprints are different contenders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.imports.contender import Contender, Entry
from harness.imports.naming import select
from harness.imports.run_folder import about, answers_of
from harness.saved.entry import Saved
from harness.saved.store import Store

SHORTEST: Final = 8
"""Digits of a fingerprint that a person must give."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest saved results of one checkpoint, by benchmark; their items are not read yet."""

    name: str
    about: Mapping[str, Any]
    entries: Mapping[str, Saved]


def kept(store: Store, run_id: str | None = None) -> list[Kept]:
    """Every checkpoint that has saved results, of all runs or of one, in order of their first."""
    found: dict[tuple[str, str], dict[str, Saved]] = {}
    for saved in store.find():  # oldest first, so the last of a benchmark stays
        if run_id not in (None, saved.run_id):
            continue
        by = (saved.fingerprint, "" if saved.fingerprint else saved.checkpoint)
        found.setdefault(by, {})[saved.benchmark] = saved
    rows = []
    for entries in found.values():
        last = max(entries.values(), key=lambda saved: saved.began)
        rows.append(Kept(last.checkpoint, about(last.checkpoint_info), entries))
    return rows


def meant(candidates: list[Kept], wanted: str) -> list[Kept]:
    """Those whose path or fingerprint (from 8 digits on) is wanted, else those whose name is."""
    sure = [one for one in candidates if any(_is(saved, wanted) for saved in one.entries.values())]
    return sure or select(candidates, wanted)


def contender_of(store: Store, one: Kept) -> Contender:
    """The checkpoint with its items. Raises ``DataError`` where these cannot be read."""
    last = max(one.entries.values(), key=lambda saved: saved.began)
    return Contender(
        name=one.name,
        origin=f"{'imported from' if last.published else 'saved of run'} {last.run_id}",
        about=dict(one.about),
        entries={name: _entry(store, saved) for name, saved in one.entries.items()},
    )


def _is(saved: Saved, wanted: str) -> bool:
    if len(wanted) >= SHORTEST and saved.fingerprint.startswith(wanted):
        return True
    return bool(saved.path) and Path(saved.path).resolve() == Path(wanted).resolve()


def _entry(store: Store, saved: Saved) -> Entry:
    items = store.items(saved)
    return Entry(saved=saved, items=items if items.examples else None, answers=answers_of(saved))
