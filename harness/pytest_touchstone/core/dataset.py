"""Datasets: the sources of a benchmark's rows, and the check of every row.

Rows come from one place alone. That is the benchmark itself where it has them; else the folder of ``--eval-data`` (or
``TOUCHSTONE_DATA``), the Hub with ``--eval-data hub``, or the small datasets that ship with the project. Rows that a
folder or the Hub lacks are missing, never taken from the shipped ones.

In a folder the dataset ``NAME/FILE`` is, in this order:

    NAME/FILE.jsonl              or NAME/FILE.jsonl.gz, or a folder NAME/FILE/ of JSONL files whose names are the groups
    NAME/processed/FILE.jsonl    or a folder NAME/processed/FILE/
    NAME/processed/SPLIT.jsonl   for rows to be scored: ``validation``, ``valid``, ``val`` and ``dev`` are one split;
                                 a FILE that names no split (HumanEval, problems) is ``test``, else ``validation``.

Few-shot rows are found by their own name alone: those of another split might be the ones that are scored.

Rows that a benchmark has itself are a list, a function that returns one, or files beside the benchmark's module. A
function is called when items are collected, in each process, since items are made of rows before any fixture runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.coverage import SHIPPED, BenchmarkSize
from pytest_touchstone.core.errors import DataError, MissingDataError, ShotsError
from pytest_touchstone.core.files import adapter_of, decompress, parse_json, read_regular, shipped, shown_path
from pytest_touchstone.core.text import did_you_mean, similar_names

PROCESSED: Final = "processed"
VALIDATION: Final = ("validation", "valid", "val", "dev")
SPLITS: Final = frozenset((*VALIDATION, "test", "train", "prompt", "shots"))
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
"""The endings of files that may hold rows; only files with the first two are read."""

READ: Final = ENDINGS[:2]

CANONICAL: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True)
"""Makes of a row the text whose hash identifies it."""

OWN_FILES: Final = (".jsonl", ".jsonl.gz")
"""The endings of a file beside the benchmark's module; ``/`` ends the name of a folder of such files."""

MOST_FILES: Final = 10_000
"""The files of a folder among which the nearest one is looked for."""

HUB: Final = "hub"
"""The value of ``--eval-data`` that stands for the Hugging Face Hub."""

OWN: Final = "the benchmark's own"
"""The origin of rows that a benchmark has itself, as a list or in a file beside its module."""

FILE: Final = "file"
"""The field of rows that are grouped by it: the name of their file."""

PROMPT: Final = "the benchmark's prompt"
"""The origin of few-shot rows that are part of a benchmark, whatever its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """The source of rows: ``origin`` is "--eval-data", "hub" or "shipped"; ``sha256`` is over their bytes."""

    name: str
    origin: str
    path: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RawRow:
    """One raw row with its place, for messages: file, number from 1, file stem."""

    path: str
    number: int
    stem: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a dataset.

    It has its id within the benchmark (``winogrande/17``), its group, the row as checked, and the hash of the row as
    read.
    """

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
    """Load the rows of a benchmark, each checked against the row type.

    Raises ``MissingDataError`` where it has none there, and ``DataError`` naming file and row number for a malformed
    row.
    """
    dataset = _load_source(spec, spec.data, data, scored=True)
    if dataset is not None:
        return dataset
    name = spec.data.name
    if data in (None, HUB):
        what = f"no data ({name})" if data is None else "it names no dataset on the Hub"
        raise MissingDataError(f"{spec.name}: {what}; {spec.row_rules.missing or 'give --eval-data DIR'}")
    folder = Path(data)
    near = f"; nearest: {folder / path}" if (path := nearest_file(folder, name)) else ""
    raise MissingDataError(f"{spec.name} ({folder / name}.jsonl): the data folder has no such file{near}")


def load_shots(spec: Benchmark, data: str | None) -> DatasetRows | None:
    """Load the rows of few-shot examples.

    It is None where they come from the evaluation rows: the benchmark has no others, or none of them are shipped.

    Raises ``ShotsError`` where a folder or the Hub lacks them, and ``DataError`` as ``load_dataset`` does.
    """
    spec = spec.base
    source = spec.data.shots
    if source is None:
        return None
    asked = replace(spec, group=None) if spec.shots.for_all else spec
    shots = _load_source(asked, source, data, scored=False)
    if shots is None and has_own_rows(spec.data):
        raise ShotsError(
            f"{spec.name}: fewshot={spec.data.fewshot!r} is no file beside the benchmark; give "
            "fewshot='NAME.jsonl' or fewshot=Dataset(rows=[...]), or leave it out for shots from its own rows"
        )
    if shots is not None or data is None:
        return shots
    if spec.shots.fixed and (shots := _load_source(asked, source, None, scored=False)) is not None:
        return replace(shots, info=replace(shots.info, origin=PROMPT))
    remedy = "--eval-shots 0 asks without"
    if data == HUB:
        raise ShotsError(f"{spec.name}: it names no few-shot rows on the Hub; {remedy}")
    # No other file is suggested: it may hold the rows that are scored.
    path = Path(data, f"{source.name}.jsonl")
    raise ShotsError(
        f"{spec.name} ({path}): the data folder has no such file for few-shot examples; {remedy}"
    )


def subsample(spec: Benchmark, examples: Sequence[Example], seed: int) -> Sequence[Example]:
    """Draw at most ``spec.row_rules.most_rows`` examples with ``seed``, in file order."""
    if spec.row_rules.most_rows is None or len(examples) <= spec.row_rules.most_rows:
        return examples
    chosen = seeded_random(seed, spec.base.name, "rows").sample(
        range(len(examples)), spec.row_rules.most_rows
    )
    return [examples[index] for index in sorted(chosen)]


def seeded_random(*parts: object) -> random.Random:
    """Return a random generator that depends on the given parts alone."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def count_rows(spec: Benchmark, dataset: DatasetRows, seed: int) -> dict[str, BenchmarkSize]:
    """Count the benchmark's items and rows by group; the whole is under ""."""
    rows = Counter(example.group or "" for example in dataset.examples)
    items = Counter(example.group or "" for example in subsample(spec, dataset.examples, seed))
    # Rows of the project's own are no part of what was published.
    published = None if spec.published.own_rows and dataset.info.origin == SHIPPED else spec.published.rows
    published_groups = published if isinstance(published, Mapping) else {}
    sizes = {
        group: BenchmarkSize(of=items[group], rows=count, published=published_groups.get(group))
        for group, count in rows.items()
    }
    whole = (
        sum(published_groups.values())
        if published_groups
        else published
        if isinstance(published, int)
        else None
    )
    return sizes | {"": BenchmarkSize(of=items.total(), rows=rows.total(), published=whole)}


def apply_limit(examples: Iterable[Example], limit: float | int | None) -> list[Example]:
    """Keep the first examples of each group.

    ``limit`` is a count, or as a float a fraction (rounded up).
    """
    groups: dict[str | None, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.group, []).append(example)
    kept: list[Example] = []
    for members in groups.values():
        kept += members[: math.ceil(limit * len(members)) if isinstance(limit, float) else limit]
    return kept


def _load_source(spec: Benchmark, source: Dataset, data: str | None, *, scored: bool) -> DatasetRows | None:
    """Load the rows of one source; return None where it has none."""
    if (own_rows := load_own_rows(spec, source)) is not None:
        return _check_rows(spec, Path(source.name).name or spec.name, OWN, *own_rows, scored=scored)
    if data == HUB:
        if source.path is None:
            return None
        return _check_rows(spec, source.name, HUB, source.path, _hub_lines(source), scored=scored)
    origin, folder = (SHIPPED, shipped("data")) if data is None else ("--eval-data", Path(data))
    files = data_files(folder, source.name, scored=scored)
    if not files:
        return None
    lines = (line for file in files for line in read_lines(file))
    path = files[0] if len(files) == 1 else files[0].parent
    return _check_rows(spec, source.name, origin, str(path), lines, scored=scored)


def _hub_lines(hub: Dataset) -> Iterable[RawRow]:
    """Load the rows of a Hub dataset, or of a folder that ``datasets`` reads.

    Each of several configurations counts as a file of its own, as each of the repository's ``files`` is.
    """
    try:
        import datasets
        import huggingface_hub
    except ImportError as error:
        raise DataError(
            "--eval-data hub needs the package datasets: pip install 'pytest-touchstone[hub]'"
        ) from error
    has_configs = isinstance(hub.config, tuple)
    lines: list[RawRow] = []
    paths: list[Path] = []
    for name in hub.files:
        try:
            paths.append(Path(huggingface_hub.hf_hub_download(str(hub.path), name, repo_type="dataset")))
        except Exception as error:  # of the network, the disk, or a name that is not there
            raise _unavailable(f"{hub.path}, file {name}", error) from error
    if paths:
        return (line for path in paths for line in read_lines(path))
    for config in hub.config if isinstance(hub.config, tuple) else (hub.config,):
        source = f"{hub.path}/{config}" if has_configs else str(hub.path)
        try:
            rows = datasets.load_dataset(hub.path, config, split=hub.split)
        except Exception as error:  # datasets raises dozens of kinds; all mean that the set is not available
            raise _unavailable(f"{source} ({hub.split})", error) from error
        stem = config if has_configs and config is not None else hub.split
        lines += [RawRow(source, number, stem, dict(row)) for number, row in enumerate(rows, start=1)]
    return lines


def _unavailable(dataset: str, error: Exception) -> DataError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return DataError(f"dataset {dataset}: {reason}")


def _check_rows(
    spec: Benchmark, name: str, origin: str, path: str, lines: Iterable[RawRow], *, scored: bool
) -> DatasetRows:
    """Select and check the benchmark's rows.

    A few-shot row, which is not ``scored``, need not have a group: it then serves all of them.
    """
    check = row_checker(spec)
    examples: list[Example] = []
    kept: list[RawRow] = []
    counts: dict[str | None, int] = {}
    whole = hashlib.sha256()
    for line in lines:
        if spec.row_rules.keep is not None and not spec.row_rules.keep(line.data):
            continue
        try:
            canonical = CANONICAL.encode(line.data).encode("utf-8", "backslashreplace")
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{line.path}, row {line.number}: {error}; use text, numbers, lists and dicts"
            ) from None
        whole.update(canonical + b"\n")
        if spec.subsets is not None:
            kept.append(line)
        row = check(line)
        group = _group(spec, line, row) if scored or spec.group in row or spec.group == FILE else None
        number = counts.get(group, 0)
        counts[group] = number + 1
        digest = hashlib.sha256(canonical).hexdigest()[:16]
        examples.append(Example(f"{spec.name}/{_id_prefix(spec, group)}{number}", group, row, digest))
    if spec.subsets is not None:
        examples = _by_subset(spec.subsets, kept, examples)
    if not examples:
        remedy = (
            "one JSON object per line" if name.endswith(OWN_FILES) or origin != OWN else "give one at least"
        )
        raise DataError(f"{path}: no rows; {remedy}")
    info = DatasetInfo(name=name, origin=origin, path=path, rows=len(examples), sha256=whole.hexdigest())
    return DatasetRows(info, tuple(examples))


def _id_prefix(spec: Benchmark, group: str | None) -> str:
    """Return the beginning of a row's id, before its number.

    Items of one folder make batches. Where groups have separate few-shot examples each group is a folder, else all rows
    of the benchmark are one.
    """
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
    return _id_safe(group)


def _by_subset(field: str, lines: Sequence[RawRow], examples: Sequence[Example]) -> list[Example]:
    """Group the examples by their subsets, where there are several; ids stay.

    Raises ``DataError`` for a row without a subset.
    """
    named = [line.data.get(field) for line in lines]
    if len({name for name in named if isinstance(name, str) and name}) < 2:
        return list(examples)
    regrouped: list[Example] = []
    for line, name, example in zip(lines, named, examples, strict=True):
        if not isinstance(name, str) or not name:
            raise DataError(
                f"{line.path}, row {line.number}: field {field!r} is {name!r}; the rows are of several sets, and each "
                "names its own, as text"
            )
        regrouped.append(replace(example, group=_id_safe(name)))
    return regrouped


def _id_safe(group: str) -> str:
    """Replace the characters of a group's name that ids cannot have."""
    return group.replace("/", "_").replace("[", "(").replace("]", ")").replace(" ", "_")


def row_checker(spec: Benchmark) -> Callable[[RawRow], dict[str, Any]]:
    """Return a function that prepares and checks a row.

    It raises ``DataError`` with file, row and field.

    Raises ``DataError`` for a row type that cannot be used.
    """
    from pydantic import ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter = None if spec.row is None else adapter_of(spec.row)
    except PydanticUserError as error:
        why = f"cannot be used: {error.message.splitlines()[0]}"
        if error.code == "typed-dict-version":
            why = "is a typing.TypedDict, which works from Python 3.12 on; import it from typing_extensions"
        raise DataError(f"{spec.name}: its row type {why}") from None

    def check(line: RawRow) -> dict[str, Any]:
        row = {FILE: line.stem, **line.data} if spec.group == FILE else line.data
        where = f"{line.path}, row {line.number}"
        if spec.row_rules.prepare is not None:
            try:
                row = spec.row_rules.prepare(dict(row))
            except KeyError as error:
                raise DataError(f"{where}: field {error} is missing ({spec.name} cannot use it)") from error
            except (TypeError, ValueError, IndexError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise DataError(f"{where}: {reason} ({spec.name} cannot use it)") from error
        try:
            return row if adapter is None else dict(adapter.validate_python(row))
        except ValidationError as error:
            fault = error.errors()[0]
            field = ".".join(str(step) for step in fault["loc"]) or "row"
            why = f"is {str(fault.get('input'))[:60]!r}: {fault['msg'].lower()}"
            if fault["type"] == "missing":
                why = "is missing"
            raise DataError(f"{where}: field {field!r} {why} ({spec.name} needs it)") from None

    return check


# The files of a dataset in a folder


def data_files(folder: Path, name: str, *, scored: bool) -> list[Path]:
    """Return the files of the dataset ``NAME/FILE`` in this folder, none where it has none.

    ``scored`` is true for rows that are evaluated, and false for few-shot examples, which have one name alone.

    Raises ``DataError`` where the folder cannot be read.
    """
    parent, slash, file = name.rpartition("/")
    names = [file]
    if scored and file in VALIDATION:
        names += VALIDATION
    elif scored and not SPLITS.intersection(file.lower().split("_")):  # sanitized_test is a set of its own
        names += ("test", *VALIDATION)
    processed = [f"{parent}{slash}{PROCESSED}/{split}" for split in names]
    try:
        for path in dict.fromkeys((name, *processed)):
            for ending in READ:
                if (single := folder / f"{path}{ending}").is_file():
                    return [single]
            if several := sorted((folder / path).glob("*.jsonl")):
                return several
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error
    return []


def nearest_file(folder: Path, name: str) -> str | None:
    """Return the file of rows whose path is most like ``NAME/FILE``, else None."""
    entries = itertools.chain(*(folder.glob(pattern) for pattern in ("*", "*/*", "*/*/*")))
    files = (path for path in itertools.islice(entries, MOST_FILES) if path.name.lower().endswith(ENDINGS))
    paths = {_path_letters(path): path for path in sorted(str(file.relative_to(folder)) for file in files)}
    near = similar_names(_path_letters(name), paths)
    return paths[near[0]] if near else None


def _path_letters(path: str) -> str:
    """Return the letters and digits of a path alone, without its ending, in lower case."""
    return re.sub(r"[\W_]+", "", path.partition(".")[0].replace(PROCESSED, "")).casefold()


# Rows of files, and those that a benchmark has itself


def read_text(path: Path, most: int | None = None) -> str:
    """Read a UTF-8 text file of at most ``most`` bytes. Raises ``DataError``."""
    try:
        return read_regular(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{shown_path(path)}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {error.strerror or error}") from error


def read_lines(path: Path, content: bytes | None = None) -> Iterator[RawRow]:
    """Yield the JSON objects of a file, one per line; ``.gz`` is unpacked.

    ``content`` is that of the file, where it was read already. Raises ``DataError`` naming file and row number of an
    invalid line.
    """
    shown = shown_path(path)
    try:
        data = read_regular(path) if content is None else content
        text = (decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{shown}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    for number, raw in enumerate(_split_lines(text), start=1):
        if not raw.strip():
            continue
        try:
            row = parse_json(raw)
        except ValueError as error:
            raise DataError(
                f"{shown}, row {number}: not valid JSON ({error}); one JSON object per line"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{shown}, row {number}: a {type(row).__name__}, not a JSON object")
        yield RawRow(shown, number, path.stem, row)


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text.

    A list of all lines takes several times the memory where they are short.
    """
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    yield text[at:]


def has_own_rows(source: Dataset) -> bool:
    """Return whether the rows belong to the benchmark: given ones, or files beside its module."""
    return source.rows is not None or source.name.endswith((*OWN_FILES, "/"))


def load_own_rows(spec: Benchmark, source: Dataset) -> tuple[str, list[RawRow]] | None:
    """Return the benchmark's own rows with their path; None where they come from a data folder.

    Raises ``DataError`` for rows that cannot be loaded, and for a name that was meant for a file beside the module.
    """
    if source.rows is not None:
        return f"rows of {spec.name}", list(_rows_in_code(spec, source.rows))
    if not has_own_rows(source):
        _check_name(spec, source)
        return None
    path = spec.code.folder / source.name
    files = sorted(path.glob("*.jsonl")) if source.name.endswith("/") else [path]
    if not files or not files[0].is_file():
        beside = [
            f"{sibling.name}/" if sibling.is_dir() else sibling.name
            for sibling in sorted(path.parent.glob("*"))
        ]
        near = did_you_mean(path.name, [name for name in beside if name.endswith((*OWN_FILES, "/"))])
        what = "no folder of .jsonl files" if source.name.endswith("/") else "no such file"
        raise DataError(f"{spec.name}: {shown_path(path)}: {what}; {near}".rstrip("; "))
    return str(path), [line for file in files for line in read_lines(file)]


def _check_name(spec: Benchmark, source: Dataset) -> None:
    """Raise ``DataError`` for a file name with an unsupported or missing ending."""
    name = source.local or ""
    if name.endswith(ENDINGS):
        raise DataError(
            f"{spec.name}: data={name!r}: only .jsonl files are read; for another write a function that returns its "
            "rows as dicts, and give rows=THAT_FUNCTION"
        )
    for ending in OWN_FILES:
        if name and "/" not in name and (spec.code.folder / f"{name}{ending}").is_file():
            raise DataError(f"{spec.name}: data={name!r} is no file; did you mean {name + ending!r}?")


def _rows_in_code(spec: Benchmark, rows: object) -> Iterator[RawRow]:
    """Yield the rows of a list, or of a function that returns them."""
    where = f"rows of {spec.name}"
    if callable(rows):
        try:
            rows = rows()
            if not isinstance(rows, (str, Mapping)) and isinstance(rows, Iterable):
                rows = list(rows)  # a generator may raise, too
        except pytest.fail.Exception:
            raise DataError(
                f"{where}: a fixture, which runs later; give the function without the fixture"
            ) from None
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{shown_path(Path(last.filename))}:{last.lineno}"
            raise DataError(f"{where}: {type(error).__name__}: {error} ({line})") from error
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
        raise DataError(
            f"{where}: of type {type(rows).__name__}; give a list of dicts, or a function that returns one"
        )
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(f"{where}, row {number}: of type {type(row).__name__}, not a dict")
        yield RawRow(where, number, "rows", dict(row))
