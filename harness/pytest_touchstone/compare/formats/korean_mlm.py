"""Result files and tables of Korean masked-LM studies: JSON, one per checkpoint, or CSV, one row per checkpoint.

    checkpoint (or name)            and, in a table of several series, series
    step or global_step, epoch, seq_len
    real1, real5, lambada_top1, lambada_wiki_top1     shares; NAME_strict and NAME_stderr beside each
    coref_samples, lambada_samples, lambada_wiki_samples     items
    coref_of, lambada_of, lambada_wiki_of                    items that the set has, where not all were asked
    score, reported_score           checked against 0.4 real1 + 0.3 real5 + 0.3 lambada_top1, never used

In a table a share may be written with a per cent sign. What a row lacks is not measured; a row without any of the
shares cannot be read, and neither can one with a value that is none. Such rows are listed, the others are taken.

Where a row has no step, the name of its checkpoint may have one (``checkpoint-300``).

Reports that people wrote by hand are read too: tables in Markdown, with the series in the heading above or in a column
(``| Checkpoint | Epoch | Real@1 |``), and objects in JSON below the names of series and checkpoints. A summary that
repeats rows of other tables of the report adds none.

What is written: a file per checkpoint, and ``checkpoints.csv`` with all of them. Beside the fields above they have

    real1, real5, lambada_top1     lenient scores
    lambada_wiki_top1              the same question on its Wikipedia form, never mixed with the other
    score, score_wiki              0.4 real1 + 0.3 real5 + 0.3 lambada_top1 (or lambada_wiki_top1)
    mark                           which of the numbers are over fewer items, or over a sample; empty for none
    coref_seconds, ...             time spent on them
    checkpoint_info                path, name, model_type, global_step, epoch, seq_len

What was not measured is null. Only checkpoints that ran one of these benchmarks have a file.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.checkpoints.config_files import finite_number, step_in_name, step_of_row
from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    published,
    result_from_totals,
    series_and_step_from_path,
    source_of,
)
from pytest_touchstone.compare.formats.base import (
    BadRow,
    CompositeContradiction,
    ResultTable,
    json_content,
    read_json,
)
from pytest_touchstone.compare.formats.task_json import is_task_file, read_tasks
from pytest_touchstone.core.composite import composite_value
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import SCHEMA, file_name, open_regular
from pytest_touchstone.core.text import csv_text, parse_csv_cell
from pytest_touchstone.results.store_entry import DEFAULT_COMPOSITES
from pytest_touchstone.results.summary import Metric, Result, Summary, replace_non_finite, whole_results

TABLES: Final = (".csv", ".tsv")
MARKDOWN: Final = (".md", ".markdown")
_LONGEST_HEADER: Final = 1 << 16
"""The bytes of a table's first line that are looked at."""
_NAME: Final = ("checkpoint", "name")
_REPORTED: Final = {"score": ("score", "reported_score"), "score_wiki": ("score_wiki",)}
_STRICT: Final = "_strict"
_STDERR: Final = "_stderr"

_Row: TypeAlias = tuple[int, dict[Any, Any]]
"""A row by the names of its fields, and its line."""


class KoreanStudy:
    """Objects in JSON, or a table, of Korean masked-LM studies."""

    name = "korean_mlm"
    patterns = (
        "*_results.json",
        "checkpoints.csv",
    )  # a folder's other tables and reports are read if they are named

    def sniff(self, path: Path) -> bool:
        """Return whether every object, or the first line of the table, has one of the shares."""
        if path.suffix.lower() in TABLES and path.is_file():
            try:
                with open_regular(path) as lines:
                    first = lines.readline(_LONGEST_HEADER).decode("utf-8-sig", "replace")
            except OSError:
                return False
            names = re.split(r"[,;\t]", first)
            return is_korean(dict.fromkeys(_header([name.strip().strip('"') for name in names])))
        if path.suffix.lower() in MARKDOWN and path.is_file():
            return bool(_markdown_rows(path))
        return bool(_rows_of(json_content(path)))

    def read(self, path: Path, sizes: Mapping[str, int]) -> ResultTable:
        """Read every row."""
        if path.suffix.lower() in MARKDOWN:
            return read_markdown(path, sizes)
        return (read_table if path.suffix.lower() in TABLES else read_objects)(path, sizes)

    def write(self, summary: Summary, taken: Container[str]) -> dict[str, Any]:
        """Return an object per checkpoint that ran one of the benchmarks, and the table of all."""
        del taken  # no other file ends so
        found = rows(summary)
        files: dict[str, Any] = {
            f"{file_name(row['checkpoint'])}_eval_results.json": replace_non_finite(row) for row in found
        }
        return files | ({"checkpoints.csv": table(found)} if found else {})


class WrongValueError(Exception):
    """A field of a row holds no value that it can have: ``column``, ``value``, and what to do."""

    def __init__(self, column: str, value: object, remedy: str) -> None:
        super().__init__(f"{column} is {value!r}: {remedy}")
        self.column, self.value, self.remedy = column, value, remedy


def is_korean(fields: Mapping[str, Any]) -> bool:
    """Return whether these are the fields of such a row."""
    return any(column.key in fields for column in COLUMNS)


def read_row(
    fields: Mapping[str, Any],
    *,
    origin: str,
    source: ResultSource,
    sizes: Mapping[str, int],
    alone: bool = False,
) -> tuple[CheckpointResults, tuple[CompositeContradiction, ...]]:
    """Return the candidate of a row, and its composites that contradict their formula.

    ``sizes`` are the numbers of items by benchmark, for rows without them. If a row is ``alone`` in its file and names
    no series, a step in its name is not read as a step of a training.

    Raises ``WrongValueError`` for a wrong value, and for a row without any result.
    """
    info = fields.get("checkpoint_info")
    known = {**(info if isinstance(info, Mapping) else {}), **fields}
    name = row_name(known)
    about = _about(known)
    if not (alone and "series" not in about) and (step := step_in_name(name.rpartition("/")[2])) is not None:
        about.setdefault("step", step)
    measured = _metrics(fields, sizes)
    if not measured:
        keys = ", ".join(column.key for column in COLUMNS)
        raise WrongValueError(COLUMNS[0].key, None, f"the row has no result; fill in one of {keys}")
    entries = {}
    for benchmark, metrics in measured.items():
        of = f"{KEYS[benchmark]}_of"
        saved = result_from_totals(
            benchmark,
            metrics,
            primary=next(iter(metrics)),
            source=source,
            name=name,
            about=about,
            conditions={"seq_len": about["seq_len"]} if "seq_len" in about else {},
            of=whole(of, fields.get(of)),
        )
        entries[benchmark] = BenchmarkScores(saved=saved)
    candidate = CheckpointResults(name=name, origin=origin, about=about, entries=entries)
    return candidate, _contradictions(name, fields, measured)


def row_name(fields: Mapping[str, Any]) -> str:
    """``SERIES/SEQ_LEN/CHECKPOINT`` in a table of series, else the checkpoint's name."""
    name = next((str(fields[key]) for key in _NAME if fields.get(key) not in (None, "")), "")
    step = _step(fields)
    if not name and step is None:
        raise WrongValueError("checkpoint", None, "the row has no name; fill in checkpoint or step")
    name = name.rstrip("/") or f"checkpoint-{step}"
    if not fields.get("series"):
        return name
    return "/".join(str(part) for part in (fields["series"], fields.get("seq_len"), name) if part)


def number(column: str, value: object) -> float | None:
    """Return the number in a field, None if it is empty; raises ``WrongValueError`` unless it is finite."""
    text = value.strip() if isinstance(value, str) else None
    if value is None or text == "":
        return None
    written: object = value
    if text is not None:
        with suppress(ValueError):
            written = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if (found := finite_number(written)) is None:
        raise WrongValueError(column, value, "give a number, or leave the field empty")
    return found


def share(column: str, value: object) -> float | None:
    """Return the proportion in a field, written as a fraction or in per cent; None if it is empty."""
    found = number(column, value)
    if found is not None and not 0 <= found <= 1:
        raise WrongValueError(
            column, value, "give a share from 0 to 1, or write per cent with its sign: 65.6%"
        )
    return found


def whole(column: str, value: object, least: int = 0) -> int | None:
    """Return the integer in a field, at least ``least``; None if it is empty."""
    found = number(column, value)
    if found is not None and (found != int(found) or found < least):
        raise WrongValueError(column, value, f"give a whole number from {least} up")
    return None if found is None else int(found)


def _about(fields: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "series": str(fields["series"]) if fields.get("series") else None,
        "seq_len": whole("seq_len", fields.get("seq_len"), 1),
        "step": whole("step", _step(fields)),
        "epoch": number("epoch", fields.get("epoch")),
    }
    told = series_and_step_from_path(str(fields.get("path") or fields.get("checkpoint") or ""))
    return told | {name: value for name, value in found.items() if value is not None}


def _step(fields: Mapping[str, Any]) -> Any:
    """Return the training step of a row; empty fields are ignored."""
    return step_of_row({name: value for name, value in fields.items() if value not in (None, "")})


def _metrics(fields: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, dict[str, Metric]]:
    """Return the metrics by benchmark, the primary one first."""
    found: dict[str, dict[str, Metric]] = {}
    for key, benchmark, metric, _ in COLUMNS:
        value = share(key, fields.get(key))
        if value is None:
            continue
        column = f"{KEYS[benchmark]}_samples"
        n = whole(column, fields.get(column), 1) or sizes.get(benchmark) or 0
        error = number(f"{key}{_STDERR}", fields.get(f"{key}{_STDERR}"))
        if error is not None and error < 0:
            raise WrongValueError(f"{key}{_STDERR}", error, "a standard error is not below 0")
        own = found.setdefault(benchmark, {})
        own[metric] = published(metric, value, stderr=error, n=n)
        strict = share(f"{key}{_STRICT}", fields.get(f"{key}{_STRICT}"))
        if strict is not None:
            own[f"{metric}{_STRICT}"] = published(f"{metric}{_STRICT}", strict, n=n)
    return found


def _contradictions(
    name: str, fields: Mapping[str, Any], measured: Mapping[str, Mapping[str, Metric]]
) -> tuple[CompositeContradiction, ...]:
    values = {(b, m): metric.value for b, metrics in measured.items() for m, metric in metrics.items()}
    keys = {(benchmark, metric): key for key, benchmark, metric, _ in COLUMNS}
    found = []
    for composite in DEFAULT_COMPOSITES:
        computed = composite_value(composite, values)
        for column in _REPORTED[composite.name]:
            reported = number(column, fields.get(column))
            if computed is None or reported is None:
                continue
            parts = [(part.weight, fields[keys[part.benchmark, part.metric]]) for part in composite.parts]
            slack = math.fsum(weight * _rounding(text) for weight, text in parts) + _rounding(fields[column])
            if abs(reported - computed) > slack + 1e-9:
                found.append(CompositeContradiction(name, composite.name, reported, computed))
    return tuple(found)


def _rounding(written: object) -> float:
    """Return the largest rounding error of a number as written: half a unit of its last decimal."""
    text = str(written).strip()
    match = re.fullmatch(r"[-+]?\d*\.?(\d*)(%?)", text)
    if match is None:
        return 0.0
    return 0.5 * 10.0 ** -(len(match[1]) + (2 if match[2] else 0))


def read_objects(path: Path, sizes: Mapping[str, int]) -> ResultTable:
    """Return the checkpoints in a JSON file; ``BadRow.line`` is the number in its list."""
    source, content = read_json(path)
    objects = _rows_of(content)
    table = _result_table(enumerate(objects, start=1), source, sizes, alone=len(objects) == 1)
    if is_task_file(content):  # beside the checkpoint: other benchmarks too
        others = read_tasks(content, path, source, sizes).entries
        for candidate in table.candidates:
            candidate.entries.update({name: entry for name, entry in others.items() if name not in KEYS})
    return table


def read_table(path: Path, sizes: Mapping[str, int]) -> ResultTable:
    """Return every row of the file. Raises ``DataError`` if it is not such a table."""
    source, data = source_of(path)
    return _result_table(_csv_rows(path, data), source, sizes, has_lines=True)


def _csv_rows(path: Path, data: bytes) -> Iterator[_Row]:
    """Yield the rows of a table with the lines on which they end."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    first = text.partition("\n")[0]
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True
    )
    try:
        header = reader.fieldnames = _header([name.strip() for name in reader.fieldnames or ()])
        if not is_korean(dict.fromkeys(header)):
            raise DataError(
                f"{path}: its first line has none of the columns {', '.join(c.key for c in COLUMNS)}; "
                "a table of checkpoints has a line of names, then a line per checkpoint"
            )
        for fields in reader:
            yield (
                reader.line_num,
                {
                    name: parse_csv_cell(value) if isinstance(value, str) else value
                    for name, value in fields.items()
                },
            )
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from None


def read_markdown(path: Path, sizes: Mapping[str, int]) -> ResultTable:
    """Every row of the tables in a report that have one of the shares."""
    source, _ = source_of(path)
    return _result_table(_markdown_rows(path), source, sizes, has_lines=True)


def _result_table(
    rows: Iterable[_Row],
    source: ResultSource,
    sizes: Mapping[str, int],
    *,
    has_lines: bool = False,
    alone: bool = False,
) -> ResultTable:
    """Return the checkpoints of rows with their numbers, and what is wrong with the others.

    With ``has_lines`` they are those of a table, whose rows are of one length and have names of their own.
    """
    candidates: list[CheckpointResults] = []
    contradictions: list[CompositeContradiction] = []
    bad: list[BadRow] = []
    lines: dict[str, int] = {}
    for line, fields in rows:
        origin = f"{source.file}, line {line}" if has_lines else source.file
        try:
            if has_lines:
                _check_length(fields)
            candidate, wrong = read_row(fields, origin=origin, source=source, sizes=sizes, alone=alone)
            if has_lines and candidate.name in lines:
                taken = f"line {lines[candidate.name]} has this name; give it another name"
                raise WrongValueError("checkpoint", candidate.name, taken)
        except WrongValueError as error:
            value = None if error.value is None else str(error.value)
            bad.append(BadRow(line, error.column, value, error.remedy))
            continue
        lines[candidate.name] = line
        candidates.append(candidate)
        contradictions += wrong
    return ResultTable(tuple(candidates), tuple(contradictions), tuple(bad))


def _check_length(fields: Mapping[str | None, object]) -> None:
    """Raise ``WrongValueError`` for a row that has more or fewer fields than the first line has names."""
    if None in fields:
        text = f"the row has more than {len(fields) - 1} fields"
        raise WrongValueError("the end of the row", str(fields[None]), text)
    if missing := [name for name, value in fields.items() if value is None]:
        raise WrongValueError(str(missing[0]), None, f"the row has fewer than {len(fields)} fields")


MOST_DEEP: Final = 4
"""The levels of names above the objects of checkpoints."""

FIELDS: Final = {
    "real@1": "real1", "real@5": "real5", "lambada@1": "lambada_top1", "lambada": "lambada_top1", "score": "score",
    "composite": "score", "epochs": "epoch", "steps": "step", "model": "series", "training": "series",
    "체크포인트": "checkpoint", "에폭": "epoch", "스텝": "step", "종합점수": "score", "종합스코어": "score",
    "모델": "series", "시리즈": "series",
}  # fmt: skip
"""The names that reports have for fields, without spaces."""

LENGTHS: Final = re.compile(
    r"(model|max)*(seq|sequence|ctx|시퀀스)|(model|max|input|seq|sequence|ctx|context|token|최대|시퀀스|문맥|컨텍스트)*"
    r"(len|length|길이)s?|(context|ctx)(window|size)"
)
"""The names that reports have for the length of sequences, without spaces and signs."""

PLACES: Final = ("results", "checkpoints", "rows", "data", "series", "evaluations")
"""The names above objects that name no series."""


def _rows_of(content: Any, names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the objects of checkpoints in JSON; what stands above them names their series, and themselves."""
    if isinstance(content, list):
        return [row for one in content for row in _rows_of(one, names)] if len(names) <= MOST_DEEP else []
    if not isinstance(content, Mapping):
        return []
    keys = [str(key) for key in content]
    fields = {
        field if field == "seq_len" else key: value
        for key, field, value in zip(keys, _header(keys), content.values(), strict=True)
    }
    inner = next((one for one in fields.values() if isinstance(one, Mapping) and is_korean(one)), {})
    named = any(fields.get(key) not in (None, "") for key in (*_NAME, "step", "global_step"))
    if is_korean(fields) or (inner and named):
        above = [name for name in names if name.lower() not in PLACES]
        own = {} if named or not above else {"checkpoint": above.pop()}
        return [{**_of_heading(above[-1] if above else ""), **own, **inner, **fields}]
    if len(names) > MOST_DEEP:
        return []
    return [row for key, one in content.items() for row in _rows_of(one, (*names, str(key)))]


def _header(names: Iterable[str]) -> list[str]:
    """Return our names of columns; one that is there in our words is not replaced by another."""
    header = list(names)
    for place, name in enumerate(header):
        if (field := _field(name)) not in header:
            header[place] = field
    return header


def _field(name: object) -> str:
    """Return our name of a field in a report."""
    plain = re.sub(r"[*`\s]+", "", str(name)).lower()
    plain = re.sub(r"\(.*\)$", "", plain)
    word = re.sub(r"[-_.:]", "", plain)
    return FIELDS.get(plain) or FIELDS.get(word) or ("seq_len" if LENGTHS.fullmatch(word) else plain)


def _of_heading(text: str) -> dict[str, Any]:
    """Return the series and the sequence length in a heading or a name: ``### MLM v2 @ 1536``."""
    pair = r"(\w+)\s*=\s*([\w.]+)"  # (steps_per_epoch = 131)
    pairs = {_field(key): value for key, value in re.findall(pair, text)}
    plain = f"{re.sub(pair, ' ', text)} {pairs.get('seq_len', '')}"
    plain = re.sub(
        r"[^\w\s./-]|seq[_ ]?len\w*|tokens?",
        " ",
        re.sub(r"^#+\s*(\d+[.)]\s*)*", "", plain),
        flags=re.IGNORECASE,
    )
    length = re.search(r"(?<![\d.])(\d{3,5})(?![\d.])", plain)
    name = plain.replace(length[1], " ") if length else plain
    series = "_".join(name.split()).strip("_-/")
    return {**({"series": series} if series else {}), **({"seq_len": int(length[1])} if length else {})}


def _markdown_rows(path: Path) -> list[_Row]:
    """Return the rows of the tables that have one of the shares, with their lines."""
    text = source_of(path)[1].decode("utf-8-sig", "replace")
    heading = ""
    header: list[str] = []
    tables: list[list[_Row]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            heading = line
        if not line.lstrip().startswith("|"):
            header = []
            continue
        cells = [
            re.sub(r"[*`]|[\U0001F000-\U0001FAFF\u2600-\u27BF\u2B50]", "", one).strip()
            for one in line.strip().strip("|").split("|")
        ]
        if not header:
            header = _header(cells)
            tables.append([])
        elif (
            is_korean(dict.fromkeys(header))
            and len(cells) == len(header)
            and not set("".join(cells)) <= set("-: ")
        ):
            fields = {key: value for key, value in zip(header, cells, strict=True) if value not in ("-", "")}
            series = _of_heading("" if "series" in fields else heading)
            tables[-1].append((number, {**series, **fields}))
    found = [row for table in _without_summaries(tables) for row in table]
    for _, fields in found:
        if not fields.keys() & {*_NAME, "step"} and "epoch" in fields:
            fields["checkpoint"] = f"epoch-{fields['epoch']}"
    return found


def _without_summaries(tables: Sequence[list[_Row]]) -> list[list[_Row]]:
    """Return the tables of a report without those all of whose rows other tables have too."""

    def rank(table: list[_Row]) -> tuple[int, int]:
        return len({(row.get("series"), row.get("seq_len")) for _, row in table}), table[0][0]

    kept = [table for table in tables if table]
    # Those of many series first, as a series of one checkpoint is not to make way for a summary; then the latest.
    for table in sorted(kept, key=rank, reverse=True):
        others = [row for rows in kept if rows is not table for _, row in rows]
        if all(any(_repeats(row, other) for other in others) for _, row in table):
            kept = [rows for rows in kept if rows is not table]
    return kept


def _repeats(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a row only repeats another one.

    A row that shares two values may have another name of the series.
    """
    same = [name for name in row if name in other and name != "series"]
    shares = [column.key for column in COLUMNS if column.key in same]
    named = {"_".join(str(fields.get("series", "")).split()).casefold() for fields in (row, other)}
    return len(shares) >= len(named) and all(_alike(name, row[name], other[name]) for name in same)


def _alike(name: str, first: Any, second: Any) -> bool:
    """Return whether two cells have one text or number; one of two may be rounded or truncated."""
    try:
        numbers = [share for value in (first, second) if (share := number(name, value)) is not None]
    except WrongValueError:
        return str(first).casefold() == str(second).casefold()
    halves = _rounding(first), _rounding(second)
    exact = name in ("step", "global_step", "epoch", "seq_len") or halves[0] == halves[1]
    return abs(numbers[0] - numbers[-1]) <= (0.0 if exact else 2 * max(halves)) + 1e-9


class StudyColumn(NamedTuple):
    """A number in a file of this form: its key, benchmark, metric, and name in tables of a study."""

    key: str
    benchmark: str
    metric: str
    label: str


COLUMNS: Final = (
    StudyColumn("real1", "real_coref", "real@1", "Real@1"),
    StudyColumn("real5", "real_coref", "real@5", "Real@5"),
    StudyColumn("lambada_top1", "ko_lambada", "lambada@1", "LAMBADA@1"),
    StudyColumn("lambada_wiki_top1", "ko_lambada_wiki", "lambada@1", "LAMBADA@1 (Wikipedia)"),
)
SETS: Final = {"coref": "real_coref", "lambada": "ko_lambada", "lambada_wiki": "ko_lambada_wiki"}
KEYS: Final = {benchmark: key for key, benchmark in SETS.items()}
SCORES: Final = ("score", "score_wiki")
RANKED: Final = (*SCORES, "real1", "real5")
INFO: Final = ("path", "name", "model_type", "global_step", "epoch", "seq_len")


def rows(summary: Summary) -> list[dict[str, Any]]:
    """One object in this form for each checkpoint that ran one of its benchmarks, in the run's order."""
    found: dict[str, dict[str, Result]] = {}
    for result in whole_results(summary):
        if result.benchmark in SETS.values():
            found.setdefault(result.checkpoint, {})[result.benchmark] = result
    return [_row(summary, checkpoint, results) for checkpoint, results in found.items()]


def best(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each of score, score_wiki, real1, real5: the checkpoint with the highest value, the first of
    equals.

    A number that no checkpoint has is left out. A maximum over many noisy values is biased upwards: the standard
    error stands beside it.
    """
    found: dict[str, dict[str, Any]] = {}
    for key in RANKED:
        measured = [row for row in rows if row[key] is not None]
        if measured:
            top = max(measured, key=lambda row: row[key])
            found[key] = {
                "checkpoint": top["checkpoint"],
                "value": top[key],
                "stderr": top[f"{key}_stderr"],
                "of": len(measured),
            }
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV with a header, one line per checkpoint; unmeasured fields are empty."""
    first = ("checkpoint", "global_step", "epoch", "seq_len")
    names = [*first, *(key for key in rows[0] if key not in (*first, "checkpoint_info", "schema"))]
    return csv_text([names, *([{**row["checkpoint_info"], **row}[name] for name in names] for row in rows)])


def _row(summary: Summary, checkpoint: str, results: Mapping[str, Result]) -> dict[str, Any]:
    info = next((row for row in summary.checkpoints if row.get("name") == checkpoint), {"name": checkpoint})
    row: dict[str, Any] = {"schema": SCHEMA, "checkpoint": checkpoint, "seq_len": info.get("seq_len")}
    for key, benchmark, name, _ in COLUMNS:
        metrics = results[benchmark].metrics if benchmark in results else {}
        metric, strict = metrics.get(name), metrics.get(f"{name}{_STRICT}")
        row |= {key: metric.value if metric else None, f"{key}{_STDERR}": metric.stderr if metric else None}
        row[f"{key}{_STRICT}"] = strict.value if strict else None
    for name in SCORES:
        composites = (c for c in summary.composites if (c["name"], c["checkpoint"]) == (name, checkpoint))
        score = next(composites, {"value": None, "stderr": None})
        row |= {name: score["value"], f"{name}{_STDERR}": score["stderr"]}
    for key, benchmark in SETS.items():
        result = results.get(benchmark)
        row |= {
            f"{key}_samples": result.scored if result else None,
            f"{key}_of": (result.of or None) if result else None,
            f"{key}_seconds": round(result.seconds, 3) if result else None,
        }
    return row | {
        "mark": "; ".join(f"{name}: {result.mark}" for name, result in results.items() if result.mark),
        "total_seconds": round(sum(result.seconds for result in results.values()), 3),
        "run_id": summary.run_id,
        "checkpoint_info": {key: info.get(key) for key in INFO},
    }
