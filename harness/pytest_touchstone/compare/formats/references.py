"""References: the answers of several runs of one model in one text file, to commit beside the tests of an engine.

    touchstone answers 1

    benchmark: "gsm8k"
    version: 2
    ...
    0a1b2c3d 4
    0a8f01e2 3

A file has a block per benchmark: lines ``KEY: JSON`` (``ReferenceHeader``), then a line per item in the order of the
hashes. It has the first digits of the SHA-256 of the item's id and of the hash of its row, and the sum of its scores
over all runs: of right and wrong answers the number of right ones. Saved with ``p_right``, its mean follows as two
hexadecimal digits.

The first N lines are the same sample of the items in every build. An item whose row has changed is not found.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults, published
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.core.aggregation import P_RIGHT
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.files import (
    FINITE,
    MOST_SETTINGS,
    from_plain,
    open_regular,
    parse_json,
    read_regular,
    shown_path,
)
from pytest_touchstone.core.settings import OF_ENGINES, manifest_conditions, settings_table
from pytest_touchstone.results.store_entry import ItemScores, StoredResult

SUFFIX: Final = ".answers"
FIRST_LINE: Final = "touchstone answers 1"

DIGITS: Final = 8
"""The hexadecimal digits of an item, unless two items share them."""

SOFT_STEPS: Final = 255
"""The largest soft score, of two hexadecimal digits."""

MOST_RUNS: Final = 1000
"""The most reference runs of a file."""

_ITEM: Final = re.compile(r"([0-9a-f]{8,64}) (\d{1,6}(?:\.\d{1,3})?)(?: ([0-9a-f]{2}))?")
_KEY: Final = re.compile(r"([a-z_]+): (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceHeader:
    """The header of a benchmark: what was asked, of what, and when.

    ``rows`` is the hash of the dataset, ``file`` the path of a benchmark that is not shipped. ``prompts`` are hashes of
    the first prompts of the first items, empty for an item that asked nothing; ``request`` has the stop sequences and
    the limit of tokens of the first item's.
    ``settings`` are those that are not the defaults, ``models`` and ``engines`` what was asked, ``date`` is the last
    run's. ``metric`` is the mean of ``score``.
    """

    __pydantic_config__ = FINITE

    benchmark: str
    version: int
    rows: str
    of: int
    prompts: list[str] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)
    template: str = "plain"
    shots: int = 0
    few_shot: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    code: str | None = None
    file: str | None = None
    metric: str
    score: str
    temperature: float | None = None
    runs: int
    models: list[str] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)
    date: str = ""

    @property
    def asking(self) -> dict[str, Any]:
        """Return the arguments of ``evaluate``, but for shots, by which a candidate is asked like the references."""
        # A file is no command line: of a value that switches a protection off it says nothing.
        asked = {
            row.name: self.settings[row.name]
            for row in settings_table().values()
            if row.affects == "answers"
            and row.option
            and not row.typed
            and row.name not in OF_ENGINES
            and self.settings.get(row.name) is not None
        }
        pick = str(self.few_shot.get("pick") or "")
        return {
            **asked,
            "chat": "on" if self.template == "chat" else "off",
            **({"fewshot": pick} if pick.startswith("lm-eval") else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceItems(ItemScores):
    """The items of a file of references: ids are hashes, in their order, and rows are part of them."""

    def named_as(self, other: ItemScores) -> ItemScores:
        """Return the items that another result has, under its ids; the file may have more than are asked."""
        pairs = {
            item_hash(example, row, len(self.examples[0])): (example, row)
            for example, row in zip(other.examples, other.rows, strict=True)
        }
        kept = {index: pairs[digest] for index, digest in enumerate(self.examples) if digest in pairs}
        return ItemScores(
            examples=[example for example, _ in kept.values()],
            rows=[row for _, row in kept.values()],
            groups=[None] * len(kept),
            clusters=[None] * len(kept),
            scores={name: [column[index] for index in kept] for name, column in self.scores.items()},
        )


@dataclass(frozen=True, slots=True)
class References(BenchmarkScores):
    """The references of one benchmark."""

    header: ReferenceHeader = field(kw_only=True)


def item_hash(example: str, row: str, digits: int = DIGITS) -> str:
    """Return the digits by which a file of references knows an item, by its id and the hash of its row."""
    return hashlib.sha256(f"{example}\0{row}".encode("utf-8", "backslashreplace")).hexdigest()[:digits]


class ReferenceFile:
    """A file of references as a format of results."""

    name = "references"
    patterns = (f"*{SUFFIX}",)

    def sniff(self, path: Path) -> bool:
        """Return whether the file begins as one of references."""
        return is_reference_file(path)

    def read(self, path: Path, sizes: Mapping[str, int]) -> ResultTable:
        """Read the references as one checkpoint."""
        del sizes  # the file has its items
        references = read_references(path)
        name = " and ".join(dict.fromkeys(entry.saved.checkpoint for entry in references.values()))
        return ResultTable((CheckpointResults(name, f"references {path.name}", entries={**references}),))


def is_reference_file(path: Path) -> bool:
    """Return whether a path is a file of references, by its first line."""
    try:
        with open_regular(path) as file:
            return file.readline(len(FIRST_LINE) + 2).strip() == FIRST_LINE.encode()
    except OSError:
        return False


# Read


def sampled_examples(
    references: References, examples: Sequence[Example], limit: float | int | None, where: str
) -> list[Example]:
    """Return the examples of the first items of the references, in the order of their hashes.

    Args:
        references: The references of the benchmark.
        examples: All examples of the benchmark.
        limit: A number of items, or a fraction of them (rounded up); None for all.
        where: The origin of the examples' rows, for a message.

    Raises:
        DataError: If an item is not among the examples.

    """
    hashes = references.items.examples
    chosen = hashes[: math.ceil(limit * len(hashes)) if isinstance(limit, float) else limit]
    by_hash = {item_hash(example.id, example.sha256, len(hashes[0])): example for example in examples}
    if missing := sum(digest not in by_hash for digest in chosen):
        raise DataError(
            f"{references.saved.benchmark}: {missing:,} of the {len(chosen):,} items of {references.saved.run_id} "
            f"are not among the {len(examples):,} rows of {where}; give the rows that it was saved with: "
            "data=FOLDER or data='hub' (--eval-data)"
        )
    return [by_hash[digest] for digest in chosen]


def read_references(path: Path) -> dict[str, References]:
    """Return the references by benchmark. Raises ``DataError`` naming the line that cannot be read."""
    try:
        lines = read_regular(path, MOST_SETTINGS).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {error}") from None
    if lines[0].strip() != FIRST_LINE:
        raise DataError(
            f"{shown_path(path)}: no file of references, which begins with {FIRST_LINE!r}; "
            "`touchstone baseline save RUN... FILE` writes one"
        )
    references: dict[str, References] = {}
    keys: dict[str, Any] = {}
    items: dict[str, re.Match[str]] = {}
    for number, line in enumerate([*lines[1:], ""], 2):
        try:
            if item := _ITEM.fullmatch(line):
                if items.setdefault(item[1], item) is not item:
                    raise ValueError(f"the item {item[1]} is there twice")
            elif pair := _KEY.fullmatch(line):
                keys[pair[1]] = parse_json(pair[2])
            elif line.strip():
                raise ValueError(f"{line[:60]!r} is neither an item nor KEY: JSON")
            elif items:
                entry = _references(keys, items, path)
                if references.setdefault(entry.saved.benchmark, entry) is not entry:
                    raise ValueError(f"{entry.saved.benchmark[:60]!r} is there twice")
                keys, items = {}, {}
        except (ValueError, HarnessError) as error:
            raise DataError(
                f"{shown_path(path)}, line {number}: {error}; restore the file, or save it anew"
            ) from None
    if not references or keys:
        raise DataError(f"{shown_path(path)}: it ends before the items; restore the file, or save it anew")
    return references


def _references(keys: dict[str, Any], items: Mapping[str, re.Match[str]], path: Path) -> References:
    """Return the references of one block. Raises ``ValueError`` for what no writer has written."""
    header = from_plain(ReferenceHeader, keys)
    if not 1 <= header.runs <= MOST_RUNS:
        raise ValueError(f"runs is {header.runs}; expected 1 to {MOST_RUNS}")
    ordered = sorted(items)
    means = [float(items[digest][2]) / header.runs for digest in ordered]
    if len({len(digest) for digest in ordered}) > 1 or any(mean > 1 for mean in means):
        raise ValueError(
            f"{header.benchmark[:60]}: items with hashes of several lengths, or more right than runs"
        )
    scores = {header.score: means, header.metric: means}
    if all(item[3] for item in items.values()):
        scores[P_RIGHT] = [int(items[digest][3], 16) / SOFT_STEPS for digest in ordered]
    saved = StoredResult(
        run_id=path.name,
        directory="",
        began=0.0,
        checkpoint=" and ".join(header.models) or path.stem,
        fingerprint=hashlib.sha256("\n".join(ordered).encode()).hexdigest(),
        path="",
        step=None,
        benchmark=header.benchmark,
        primary=header.metric,
        conditions={
            **manifest_conditions({}),
            **header.settings,
            "version": header.version,
            "data": header.rows,
            "shots": header.shots,
            "few_shot": header.few_shot,
            "template": header.template,
        },
        aggregate={},
        metrics={
            name: published(name, math.fsum(column) / len(column), n=len(column))
            for name, column in scores.items()
        },
        collected=len(ordered),
        scored=len(ordered),
        skipped=0,
        faults=0,
        items_sha256="",
        code=header.code,
        composites=[],
        temperature=header.temperature,
        of=header.of,
        reference_runs=header.runs,
    )
    return References(
        saved,
        ReferenceItems(
            examples=ordered,
            rows=[""] * len(ordered),
            groups=[None] * len(ordered),
            clusters=[None] * len(ordered),
            scores={name: [*column] for name, column in scores.items()},
        ),
        header=header,
    )


def noise_of(references: BenchmarkScores) -> float | None:
    """Return the share of items that flip between two reference runs; None for one run.

    Of an item that was right in r of k runs, 2 r (k - r) / (k (k - 1)) of their pairs differ.
    """
    runs, column = references.saved.reference_runs, references.items.scores[references.saved.primary]
    if runs < 2:
        return None
    flips = math.fsum(2 * share * (1 - share) for share in column if share is not None)
    return flips / len(column) * runs / (runs - 1)
