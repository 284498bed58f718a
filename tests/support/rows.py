"""Rows in files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write the rows; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
