"""Datasets: the sources of a benchmark's rows, and the check of every row.

Rows come from one place alone. That is the benchmark itself where it has them; else the folder of ``--eval-data`` (or
``TOUCHSTONE_DATA``), the Hub with ``--eval-data hub``, or the small datasets that ship with the project. Rows that a
folder or the Hub lacks are missing, never taken from the shipped ones. ``core.data_files`` finds the files of
a dataset ``NAME/FILE`` in a folder.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.data_files import (
    CANONICAL,
    OWN_FILES,
    DatasetInfo,
    RawRow,
    data_files,
    is_own,
    nearest,
    own_lines,
    read_lines,
)
from pytest_touchstone.core.errors import DataError, MissingDataError, ShotsError
from pytest_touchstone.core.files import adapter_of, shipped
from pytest_touchstone.core.marks import SHIPPED, Extent

HUB: Final = "hub"
"""The value of ``--eval-data`` that stands for the Hugging Face Hub."""

OWN: Final = "the benchmark's own"
"""The origin of rows that a benchmark has itself, as a list or in a file beside its module."""

FILE: Final = "file"
"""The field of rows that are grouped by it: the name of their file."""

DIGEST: Final = 16
"""The hexadecimal digits of a hash that identify a row."""

PROMPT: Final = "the benchmark's prompt"
"""The origin of few-shot rows that are part of a benchmark, whatever its data."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row: its id within the benchmark (``winogrande/17``), its group, the row as checked, and the hash
    of the row as read."""

    id: str
    group: str | None
    row: dict[str, Any]
    sha256: str


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """All rows of one benchmark, in file order."""

    info: DatasetInfo
    examples: tuple[Example, ...]


def load_dataset(spec: Benchmark, data: str | None) -> DatasetRows:
    """The rows of a benchmark, every one checked against its row type.

    Raises ``MissingDataError`` where it has none there, and ``DataError`` naming file and row number for a malformed
    row.
    """
    found = _load(spec, spec.data, data, scored=True)
    if found is not None:
        return found
    name = spec.data.name
    if data in (None, HUB):
        what = f"no data ({name})" if data is None else "it names no dataset on the Hub"
        raise MissingDataError(f"{spec.name}: {what}; {spec.missing or 'give --eval-data DIR'}")
    folder = Path(data)
    near = f"; nearest: {folder / path}" if (path := nearest(folder, name)) else ""
    raise MissingDataError(f"{spec.name} ({folder / name}.jsonl): the data folder has no such file{near}")


def load_shots(spec: Benchmark, data: str | None) -> DatasetRows | None:
    """The rows that few-shot examples are drawn from. None stands for the evaluation rows, where the benchmark has no
    others or none of them are shipped.

    Raises ``ShotsError`` where a folder or the Hub lacks them, and ``DataError`` as ``load_dataset`` does.
    """
    spec = spec.base
    source = spec.data.shots
    if source is None:
        return None
    asked = replace(spec, group=None) if spec.shots.for_all else spec
    found = _load(asked, source, data, scored=False)
    if found is None and is_own(spec.data):
        raise ShotsError(
            f"{spec.name}: fewshot={spec.data.fewshot!r} is no file beside the benchmark; give "
            "fewshot='NAME.jsonl' or fewshot=Dataset(rows=[...]), or leave it out for shots from its own rows"
        )
    if found is not None or data is None:
        return found
    if spec.shots.fixed and (found := _load(asked, source, None, scored=False)) is not None:
        return replace(found, info=replace(found.info, origin=PROMPT))
    remedy = "--eval-shots 0 asks without"
    if data == HUB:
        raise ShotsError(f"{spec.name}: it names no few-shot rows on the Hub; {remedy}")
    # No other file is suggested: it may hold the rows that are scored.
    path = Path(data, f"{source.name}.jsonl")
    raise ShotsError(
        f"{spec.name} ({path}): the data folder has no such file for few-shot examples; {remedy}"
    )


def subsample(spec: Benchmark, examples: Sequence[Example], seed: int) -> Sequence[Example]:
    """All examples; of more than ``spec.most_rows`` that number, drawn with ``seed``, in file order."""
    if spec.most_rows is None or len(examples) <= spec.most_rows:
        return examples
    chosen = seeded(seed, spec.base.name, "rows").sample(range(len(examples)), spec.most_rows)
    return [examples[place] for place in sorted(chosen)]


def seeded(*parts: object) -> random.Random:
    """A generator of random numbers that depends on these parts alone."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def extents_of(spec: Benchmark, dataset: DatasetRows, seed: int) -> dict[str, Extent]:
    """The benchmark's numbers of items with this data, by group, the whole under ""."""
    rows = Counter(example.group or "" for example in dataset.examples)
    items = Counter(example.group or "" for example in subsample(spec, dataset.examples, seed))
    # Rows of the project's own are no part of what was published.
    published = None if spec.published.own_rows and dataset.info.origin == SHIPPED else spec.published.rows
    known = published if isinstance(published, Mapping) else {}
    found = {
        group: Extent(of=items[group], rows=count, published=known.get(group))
        for group, count in rows.items()
    }
    whole = sum(known.values()) if known else published if isinstance(published, int) else None
    return found | {"": Extent(of=items.total(), rows=rows.total(), published=whole)}


def take_first(examples: Iterable[Example], limit: float | int | None) -> list[Example]:
    """The first examples of each group: ``limit`` of them, or that fraction (rounded up) when it is a float."""
    groups: dict[str | None, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.group, []).append(example)
    kept: list[Example] = []
    for members in groups.values():
        kept += members[: math.ceil(limit * len(members)) if isinstance(limit, float) else limit]
    return kept


def _load(spec: Benchmark, source: Dataset, data: str | None, *, scored: bool) -> DatasetRows | None:
    """The rows of one place, None where it has none."""
    if (own := own_lines(spec, source)) is not None:
        return _checked(spec, Path(source.name).name or spec.name, OWN, *own, scored=scored)
    if data == HUB:
        if source.path is None:
            return None
        return _checked(spec, source.name, HUB, source.path, _hub_lines(source), scored=scored)
    origin, folder = (SHIPPED, shipped("data")) if data is None else ("--eval-data", Path(data))
    files = data_files(folder, source.name, scored=scored)
    if not files:
        return None
    lines = [line for file in files for line in read_lines(file)]
    place = files[0] if len(files) == 1 else files[0].parent
    return _checked(spec, source.name, origin, str(place), lines, scored=scored)


def _hub_lines(hub: Dataset) -> list[RawRow]:
    """The rows of a Hub dataset, or of a local folder that ``datasets`` reads the same way."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "--eval-data hub needs the package datasets: pip install 'pytest-touchstone[hub]'"
        ) from error
    configs = hub.config if isinstance(hub.config, tuple) else (hub.config,)
    return [row for config in configs for row in _of_config(datasets, hub, config)]


def _of_config(datasets: Any, hub: Dataset, config: str | None) -> Iterator[RawRow]:
    """The rows of one configuration; it is the file's name where there are several."""
    several = isinstance(hub.config, tuple)
    place = f"{hub.path}/{config}" if several else str(hub.path)
    try:
        rows = datasets.load_dataset(hub.path, config, split=hub.split)
    except Exception as error:  # datasets raises dozens of kinds; all mean that the set is not available
        first = str(error).strip().partition("\n")[0]
        raise DataError(f"dataset {place} ({hub.split}): {first or type(error).__name__}") from error
    stem = config if several and config is not None else hub.split
    for number, row in enumerate(rows, start=1):
        yield RawRow(place, number, stem, dict(row))


def _checked(
    spec: Benchmark, name: str, origin: str, path: str, lines: list[RawRow], *, scored: bool
) -> DatasetRows:
    """The benchmark's rows among these lines, each checked.

    A few-shot row, which is not ``scored``, need not have a group: it then serves all of them.
    """
    check = row_checker(spec)
    examples: list[Example] = []
    kept: list[RawRow] = []
    counts: dict[str | None, int] = {}
    whole = hashlib.sha256()
    for line in lines:
        if spec.keep is not None and not spec.keep(line.data):
            continue
        canonical = _canonical(line)
        whole.update(canonical + b"\n")
        if spec.subsets is not None:
            kept.append(line)
        row = check(line)
        group = _group(spec, line, row) if scored or spec.group in row or spec.group == FILE else None
        number = counts.get(group, 0)
        counts[group] = number + 1
        digest = hashlib.sha256(canonical).hexdigest()[:DIGEST]
        examples.append(Example(f"{spec.name}/{_place(spec, group)}{number}", group, row, digest))
    if spec.subsets is not None:
        examples = _by_subset(spec.subsets, kept, examples)
    if not examples:
        remedy = (
            "one JSON object per line" if name.endswith(OWN_FILES) or origin != OWN else "give one at least"
        )
        raise DataError(f"{path}: no rows; {remedy}")
    info = DatasetInfo(name=name, origin=origin, path=path, rows=len(examples), sha256=whole.hexdigest())
    return DatasetRows(info, tuple(examples))


def _canonical(line: RawRow) -> bytes:
    """A row as bytes that depend on its content alone."""
    try:
        text = CANONICAL.encode(line.data)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{line.path}, row {line.number}: {error}; use text, numbers, lists and dicts"
        ) from None
    return text.encode("utf-8", "backslashreplace")


def _place(spec: Benchmark, group: str | None) -> str:
    """The part of a row's id before its number. Items of one folder make batches: where groups have separate few-shot
    examples each is a folder, else all rows of the benchmark are one."""
    if group is None:
        return ""
    return f"{group}-" if spec.shots.for_all else f"{group}/"


def _group(spec: Benchmark, line: RawRow, row: Mapping[str, Any]) -> str | None:
    if spec.group is None:
        return None
    group = line.stem if spec.group == FILE else row.get(spec.group)
    if not isinstance(group, str) or not group:
        what = "is missing" if spec.group not in row else f"is {group!r}"
        raise DataError(
            f"{line.path}, row {line.number}: field {spec.group!r} {what}; it names the row's group, as text"
        )
    return _plain(group)


def _by_subset(field: str, lines: Sequence[RawRow], examples: Sequence[Example]) -> list[Example]:
    """The examples with their subsets as groups, where there are several; their ids stay. Raises ``DataError`` for a
    row that then has none."""
    named = [line.data.get(field) for line in lines]
    if len({name for name in named if isinstance(name, str) and name}) < 2:
        return list(examples)
    found: list[Example] = []
    for line, name, example in zip(lines, named, examples, strict=True):
        if not isinstance(name, str) or not name:
            raise DataError(
                f"{line.path}, row {line.number}: field {field!r} is {name!r}; the rows are of several sets, and each "
                "names its own, as text"
            )
        found.append(replace(example, group=_plain(name)))
    return found


def _plain(group: str) -> str:
    """A group's name in a form that ids can have."""
    return group.replace("/", "_").replace("[", "(").replace("]", ")").replace(" ", "_")


def row_checker(spec: Benchmark) -> Any:
    """A function ``RawRow -> row`` that prepares and checks a row, raising ``DataError`` with file, row and
    field."""
    adapter = _row_type(spec) if spec.row is not None else None

    def check(line: RawRow) -> dict[str, Any]:
        row = {FILE: line.stem, **line.data} if spec.group == FILE else line.data
        if spec.prepare is not None:
            try:
                row = spec.prepare(dict(row))
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                missing = (
                    f"field {error} is missing"
                    if isinstance(error, KeyError)
                    else f"{type(error).__name__}: {error}"
                )
                raise DataError(
                    f"{line.path}, row {line.number}: {missing} ({spec.name} cannot use it)"
                ) from error
        if adapter is None:
            return row
        from pydantic import ValidationError

        try:
            return dict(adapter.validate_python(row))
        except ValidationError as error:
            raise DataError(
                f"{line.path}, row {line.number}: {_fault(error.errors()[0])} ({spec.name} needs it)"
            ) from None

    return check


def _fault(detail: Mapping[str, Any]) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "row"
    if detail["type"] == "missing":
        return f"field {field!r} is missing"
    return f"field {field!r} is {str(detail.get('input'))[:60]!r}: {detail['msg'].lower()}"


def _row_type(spec: Benchmark) -> Any:
    """The adapter that checks rows; raises ``DataError`` for a row type that cannot be used."""
    from pydantic.errors import PydanticUserError

    try:
        return adapter_of(spec.row)
    except PydanticUserError as error:
        why = f"cannot be used: {error.message.splitlines()[0]}"
        if error.code == "typed-dict-version":
            why = "is a typing.TypedDict, which works from Python 3.12 on; import it from typing_extensions"
        raise DataError(f"{spec.name}: its row type {why}") from None
