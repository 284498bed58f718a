"""The share of a shard: which items of the whole run it has, as its folder keeps it for ``touchstone merge``.

shard.json    {"schema": 1, "kind": "shard", "number": 2, "count": 5, "items": of the whole run, "digest": of their ids
              and rows, "checkpoints": the names of all, "places": the own items' places among all, by node id}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import SCHEMA, check_kind, read_json, typed, write_atomic

FILE: Final = "shard.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A shard's part of the ``items`` of the whole run; ``cost`` is its part of what all of them cost."""

    number: int
    count: int
    items: int
    digest: str
    checkpoints: list[str]
    places: dict[str, int]
    cost: float = 0.0

    @property
    def name(self) -> str:
        """The shard as ``--eval-shard`` has it."""
        return f"{self.number}/{self.count}"

    @property
    def line(self) -> str:
        """The line that says what it has."""
        return f"shard {self.name}: {len(self.places):,} of {self.items:,} items, {self.cost:.1%} of the cost"


def write_share(folder: Path, share: Share) -> None:
    """Write the share; every worker writes the same."""
    plain = {name: getattr(share, name) for name in Share.__dataclass_fields__}
    write_atomic(folder / FILE, json.dumps({"schema": SCHEMA, "kind": "shard", **plain}, ensure_ascii=False))


def read_share(folder: Path) -> Share | None:
    """Return the share of a run; None for a run that is no shard. Raises ``HarnessError`` for a broken file."""
    path = folder / FILE
    try:
        data: dict[str, Any] = read_json(path)
        check_kind(data, "shard")
        return typed(Share, data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, HarnessError) as error:
        raise HarnessError(f"{path}: cannot be read: {error}") from None
