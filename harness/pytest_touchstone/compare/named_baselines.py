"""Baselines that have a name: OUTPUT/baselines/NAME.json names a checkpoint of a run.

The results themselves stay where they are saved; removing a name removes no result.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pytest_touchstone.core.errors import GateError, HarnessError
from pytest_touchstone.core.files import SCHEMA, check_kind, write_json
from pytest_touchstone.core.reading import read_json
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import StoredResult

FOLDER: Final = "baselines"
RESERVED: Final = ("best", "none")
MAIN: Final = "main"
"""The name that is used where the user gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBaseline:
    """A name for one checkpoint of one run."""

    name: str
    run_id: str
    checkpoint: str
    fingerprint: str


def set_named_baseline(output: Path, name: str, run_id: str, checkpoint: str | None = None) -> NamedBaseline:
    """Give the run's checkpoint the name, in place of what it meant before.

    Raises ``GateError`` for a name that cannot be used, a run without saved results, and a run of several checkpoints
    none of which is named.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", name) or name in RESERVED:
        raise GateError(
            f"{name!r} is no name for a baseline; use letters, digits, '.', '_', '-', not best or none"
        )
    saved = ResultStore(output).find()
    if any(one.run_id == name for one in saved):
        raise GateError(f"{name!r} is the id of a run; choose another name for the baseline")
    mine = {one.checkpoint: one for one in saved if one.run_id == run_id}
    if not mine:
        raise GateError(
            f"{run_id}: no saved results of such a run in {output}; `touchstone baseline list` shows them"
        )
    if checkpoint is None and len(mine) > 1:
        raise GateError(
            f"{run_id} has {len(mine)} checkpoints; name one with --checkpoint: {', '.join(mine)}"
        )
    chosen = mine.get(checkpoint or next(iter(mine)))
    if chosen is None:
        raise GateError(f"{run_id} has no checkpoint {checkpoint!r}; it has {', '.join(mine)}")
    pin = NamedBaseline(
        name=name, run_id=run_id, checkpoint=chosen.checkpoint, fingerprint=chosen.fingerprint
    )
    write_json(_path(output, name), {"schema": SCHEMA, "kind": "baseline", **asdict(pin)})
    return pin


def read_named_baseline(output: Path, name: str) -> NamedBaseline | None:
    """The baseline that the name means, None if there is none; raises ``GateError`` for a file that cannot be read."""
    path = _path(output, name)
    try:
        data = read_json(path)
        check_kind(data, "baseline")
        return NamedBaseline(**{field: str(data[field]) for field in NamedBaseline.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (HarnessError, OSError, ValueError, KeyError, TypeError) as error:
        raise GateError(f"{path}: cannot be read ({error}); set the baseline again") from None


def list_named_baselines(output: Path) -> list[NamedBaseline]:
    """All of them, by name."""
    names = sorted(path.stem for path in (output / FOLDER).glob("*.json"))
    return [pin for name in names if (pin := read_named_baseline(output, name)) is not None]


def remove_named_baseline(output: Path, name: str) -> bool:
    """Remove the name; return False where nothing had it."""
    path = _path(output, name)
    there = path.is_file()
    path.unlink(missing_ok=True)
    return there


def pinned(pin: NamedBaseline, saved: list[StoredResult]) -> list[StoredResult]:
    """The results that a name means."""
    return [
        one
        for one in saved
        if (one.run_id, one.checkpoint, one.fingerprint) == (pin.run_id, pin.checkpoint, pin.fingerprint)
    ]


def _path(output: Path, name: str) -> Path:
    return output / FOLDER / f"{name}.json"
