"""Files of answers, as other programs write them, read into ``AnswerRow``.

    JSON lines                       a field for the answer, and one that says which row it answers: an id, the
                                     prompt, or none for the order of the benchmark's rows
    samples_TASK_DATE.jsonl          of lm-evaluation-harness (--log_samples), with texts or log-likelihoods
    LOG.eval, LOG.json               of inspect_ai
    predictions/MODEL/DATASET.json   of OpenCompass
    SAMPLES.jsonl, ..._eval_results.json    of human-eval, EvalPlus and CodeT: programs
    ..._eval_all.json                of LiveCodeBench: programs
    details_TASK_DATE.parquet        of lighteval; other parquet files are read as JSON lines are

The content decides which it is. Whatever is wrong with a file becomes a ``DataError`` of one line.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.dataset import read_lines
from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.files import parse_json, read_regular, shown_path
from pytest_touchstone.core.requests import Provenance
from pytest_touchstone.core.tasks import filtered_metric
from pytest_touchstone.core.text import join_names

IDS: Final = (
    *("task_id", "id", "question_id", "example_id", "sample_id", "unique_id", "uid", "qid", "key", "ID"),
    *("doc_id", "idx", "index", "item"),
)
"""The fields that name the row that is answered; of several the first."""

PROMPTS: Final = ("prompt", "full_prompt", "question", "input", "instruction", "query", "messages", "problem")

ANSWERS: Final = (
    *("completion", "solution", "samples", "prediction", "predictions", "response", "responses"),
    *("completions", "generation", "generations", "generated_text", "model_output", "model_answer"),
    *("output", "outputs", "text", "content", "answer", "code_list", "output_list"),
)
"""The fields that hold an answer, or a list of samples; of several the first."""

VERDICTS: Final = ("passed", "correct", "is_correct", "exact_match", "acc", "score", "pass@1")
EXTRACTED: Final = ("extracted", "extracted_answer", "parsed_answer", "predicted", "pred")

DETAILS: Final = frozenset({"model_response", "full_prompt"})
"""Columns of lighteval's details, one of which each release has."""

NAMED_FIELDS: Final = ("JSON lines", "samples of programs", "a list of JSON objects")
"""The kinds of files in which a person may name the fields."""

MOST_UNPACKED: Final = 4 << 30
"""Bytes that a log may unpack to; and at most a thousand times its own size, as a bomb would."""

MOST_PACKED: Final = 1000

BATCH: Final = 64
"""The rows of a parquet file that are unpacked at once."""


class RecordedChoice(NamedTuple):
    """A continuation of a context with its log-probability, and whether it was the most probable one."""

    context: str
    continuation: str
    logprob: float
    is_greedy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """A row of a file: what it answers, and its answers.

    ``ids`` are its names by field. ``question`` is the row of the dataset as text, where the file has it. Of several
    samples ``texts`` has each, of a choice ``choices``. ``chat``: it was asked as a conversation; ``cut``: the text
    ended at the limit of tokens.
    """

    number: int
    ids: Mapping[str, str] = field(default_factory=dict)
    question: str = ""
    texts: tuple[str, ...] = ()
    choices: tuple[RecordedChoice, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    chat: bool = False
    cut: bool = False

    @property
    def name(self) -> str:
        """Its number, and its first name if it has one."""
        return f"row {self.number}" + next((f" ({key} {text[:40]})" for key, text in self.ids.items()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFile:
    """A file of answers: its kind, and what it says of the model and of how it was asked (``asked``)."""

    path: Path
    kind: str
    sha256: str
    rows: tuple[AnswerRow, ...]
    model: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """The samples that each row has at least; rows of one name are samples of one row."""
        counts: dict[object, int] = {}
        for row in self.rows:
            key = tuple(row.ids.items()) or row.provenance.prompt or row.number
            counts[key] = counts.get(key, 0) + len(row.texts)
        return max(1, min(counts.values(), default=1))


def read_answers(path: Path, *, answer: str = "", id_field: str = "") -> AnswerFile:
    """Read a file of answers of any kind.

    Args:
        path: The file.
        answer: The field of the answer, where it is to be no other.
        id_field: The field that names the row that is answered, where it is to be no other.

    Raises:
        DataError: If it cannot be read, or is of no known kind.

    """
    shown = shown_path(path)
    try:
        content = read_regular(path)
        digest = hashlib.sha256(content).hexdigest()
        if path.suffix == ".parquet":
            kind, rows, facts = _parquet_answers(content, answer, id_field)
        elif zipfile.is_zipfile(io.BytesIO(content)) and path.suffix != ".gz":
            kind, rows, facts = "log of inspect_ai", *_inspect(_unpacked(content))
        elif path.suffix == ".json":
            kind, rows, facts = _json_answers(parse_json(content), answer, id_field)
        else:
            lines = [(line.number, line.data) for line in read_lines(path, content)]
            kind, rows, facts = _line_answers(path, lines, answer, id_field)
        if (answer or id_field) and kind not in NAMED_FIELDS:
            raise ValueError(f"--answer and --id do nothing with {kind}; leave them out")
        if any(math.isnan(choice.logprob) for row in rows for choice in row.choices):
            raise ValueError("a NaN in it is no log-likelihood")
    except HarnessError:
        raise
    except OSError as error:
        raise DataError(f"{shown}: cannot be read: {error.strerror or error}; check the path") from None
    except Exception as error:  # whatever the form of somebody's file leads to
        raise DataError(f"{shown}: no file of answers: {str(error)[:200] or type(error).__name__}") from None
    if not rows:
        raise DataError(f"{shown}: holds no answers; give one JSON object per line, with an answer in each")
    return AnswerFile(path=path, kind=kind, sha256=digest, rows=tuple(rows), **facts)


# Values of other programs


def _text(value: object, where: str) -> str:
    """Return a text, or the texts of a conversation's messages or of their parts, as one text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        pieces = (value.get(name) for name in ("content", "text", "prompt"))
        return _text(next((piece for piece in pieces if isinstance(piece, (str, list))), ""), where)
    if isinstance(value, list):
        return "\n".join(_text(piece, where) for piece in value)
    raise ValueError(f"{where} is {str(value)[:40]!r} and no text")


def _texts(value: object, where: str) -> tuple[str, ...]:
    """Return the samples of an answer, flat; a number is its text."""
    if isinstance(value, list):
        return tuple(text for sample in value for text in _texts(sample, where))
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return ((str(value) if number else _text(value, where)),)


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in plain data, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(inner)


def _score(value: object) -> float | None:
    """Return a verdict as a number: of inspect_ai ``C`` is right; None where it is none."""
    if isinstance(value, str):
        return {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "pass": 1.0, "fail": 0.0}.get(value)
    number = float(value) if isinstance(value, (bool, int, float)) else math.nan
    return number if math.isfinite(number) else None


def _verdicts(values: Mapping[str, object]) -> dict[str, float]:
    scores = {str(name): _score(value) for name, value in values.items()}
    return {name: score for name, score in scores.items() if score is not None}


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(row: Mapping[str, Any], fields: Iterable[str] = IDS) -> dict[str, str]:
    """Return the ids of a row by field."""
    return {name: str(row[name]) for name in fields if isinstance(row.get(name), (str, int))}


def _known(**facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


# JSON lines


def _line_answers(
    path: Path, lines: Sequence[tuple[int, dict[str, Any]]], answer: str, id_field: str
) -> tuple[str, Sequence[AnswerRow], Mapping[str, Any]]:
    first = lines[0][1] if lines else {}
    if not answer and "resps" in first and "arguments" in first:
        return "samples of lm-evaluation-harness", *_lm_eval(path, lines)
    rows = [_line_row(number, row, answer, id_field) for number, row in lines]
    program = rows[0].provenance.program if rows else ""
    return "samples of programs" if program else "JSON lines", rows, {}


def _line_row(number: int, row: Mapping[str, Any], answer: str, id_field: str) -> AnswerRow:
    """Return a line of any program's JSON."""
    for name in filter(None, (answer, id_field)):
        if name not in row:
            raise ValueError(f"row {number} has no field {name!r}; it has {join_names(list(row), 8)}")
    named = answer or next((name for name in ANSWERS if name in row), "")
    if not named:
        raise ValueError(
            f"row {number} has no field that could be its answer ({join_names(list(row), 8)}); name it: --answer NAME"
        )
    prompt = next((row[name] for name in PROMPTS if row.get(name) and name != named), "")
    is_program = "task_id" in row or "prompt" in row or named == "code_list"
    programs: dict[str, Any] = {
        **{"solution": "solution", "code_list": "solution"},
        **{"completion": "completion", "samples": "completion"},
    }
    return AnswerRow(
        number=number,
        ids=_names(row, [id_field] if id_field else IDS),
        texts=_texts(row[named], f"row {number}, field {named!r}"),
        chat=isinstance(prompt, list),
        provenance=Provenance(
            prompt=_text(prompt, f"row {number}, prompt"),
            extracted={name: str(row[name]) for name in EXTRACTED if name != named and name in row},
            verdicts=_verdicts({name: row[name] for name in VERDICTS if name in row}),
            program=programs.get(named, "") if is_program and not answer else "",
        ),
    )


# lm-evaluation-harness


def _lm_eval(
    path: Path, lines: Sequence[tuple[int, dict[str, Any]]]
) -> tuple[Sequence[AnswerRow], Mapping[str, Any]]:
    """Return the documents; a document has a line for each filter, whose scores and extractions are joined."""
    documents: dict[tuple[object, object], AnswerRow] = {}
    for number, line in lines:
        row, key = _lm_eval_row(number, line), (line.get("doc_id"), line.get("doc_hash"))
        if (former := documents.get(key)) is not None:
            mine, others = row.provenance, former.provenance
            verdicts, extracted = others.verdicts | mine.verdicts, others.extracted | mine.extracted
            row = replace(former, provenance=replace(mine, verdicts=verdicts, extracted=extracted))
        documents[key] = row
    first = documents[lines[0][1].get("doc_id"), lines[0][1].get("doc_hash")]
    request = _values(_values(lines[0][1]["arguments"])[0])
    how = next((value for value in request if isinstance(value, Mapping)), {})
    known = _known(
        stop=how.get("until"),
        max_new_tokens=how.get("max_gen_toks"),
        temperature=how.get("temperature"),
        metric=next(iter(first.provenance.verdicts), ""),
        **_lm_eval_run(path),
    )
    model = known.pop("model", path.parent.name.replace("__", "/") if "__" in path.parent.name else "")
    return [*documents.values()], {"model": model, "asked": known}


def _lm_eval_row(number: int, row: Mapping[str, Any]) -> AnswerRow:
    """Return a document with what one filter made of it."""
    rule = str(row.get("filter", "none"))
    metrics = row["metrics"] if isinstance(row.get("metrics"), list) else VERDICTS
    verdicts = _verdicts({filtered_metric(name, rule): row[name] for name in metrics if name in row})
    arguments = [_values(request) for request in _values(row["arguments"])]
    responses = [_first(response) for response in _values(row["resps"])]
    is_choice = bool(responses) and all(isinstance(response, list) for response in responses)
    read = "" if is_choice else ", ".join(map(str, _values(row.get("filtered_resps", []))))
    prompt = _text(arguments[0][0], f"row {number}, arguments") if arguments and arguments[0] else ""
    return AnswerRow(
        number=number,
        ids={**_names(_table(row.get("doc"))), **_names(row, ("doc_id",))},
        question="\n".join(texts_in(row.get("doc"))),
        texts=() if is_choice else _texts(row["resps"], f"row {number}, field 'resps'"),
        choices=_choices(number, arguments, responses) if is_choice else (),
        chat=prompt.startswith('[{"role"'),
        provenance=Provenance(
            prompt=prompt,
            extracted=dict.fromkeys(verdicts, read) if read else {},
            verdicts=verdicts,
        ),
    )


def _lm_eval_run(path: Path) -> dict[str, Any]:
    """Return what the results beside a file of samples say: the model and the number of few-shot examples."""
    task, _, stamp = path.stem.removeprefix("samples_").rpartition("_")
    results = path.with_name(f"results_{stamp}.json")
    if not results.is_file():
        return {}
    run = _table(parse_json(read_regular(results)))
    return {"model": str(run.get("model_name") or ""), "shots": _table(run.get("n-shot")).get(task)}


def _values(container: object) -> list[Any]:
    """Return the values of a list, or of an object in its order, as releases write one or the other."""
    return list(container.values() if isinstance(container, Mapping) else _list(container))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:40]!r} stands where a list belongs")
    return value


def _first(response: object) -> object:
    """Return the only response of a list; of a log-likelihood that is a pair."""
    return response[0] if isinstance(response, list) and len(response) == 1 else response


def _choices(
    number: int, arguments: Sequence[Sequence[Any]], responses: Sequence[Any]
) -> tuple[RecordedChoice, ...]:
    choices = []
    for argument, response in zip(arguments, responses, strict=False):
        try:
            logprob, greedy = float(response[0]), str(response[1]) == "True"
            choices.append(RecordedChoice(str(argument[0]), str(argument[1]), logprob, greedy))
        except (TypeError, ValueError, IndexError):
            raise ValueError(f"row {number}: {str(response)[:40]!r} is no log-likelihood") from None
    return tuple(choices)


# JSON


def _json_answers(
    value: object, answer: str, id_field: str
) -> tuple[str, Sequence[AnswerRow], Mapping[str, Any]]:
    if isinstance(value, Mapping) and "eval" in value and isinstance(value.get("samples"), list):
        return "log of inspect_ai", *_inspect({"header.json": value})
    if isinstance(value, Mapping) and isinstance(value.get("eval"), Mapping):
        return "results of EvalPlus", _evalplus(value["eval"]), {}
    if isinstance(value, Mapping) and value and all(isinstance(row, Mapping) for row in value.values()):
        return "predictions of OpenCompass", _opencompass(value), {}
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        rows = [_line_row(number, row, answer, id_field) for number, row in enumerate(value, 1)]
        return "a list of JSON objects", rows, {}
    raise ValueError("it is neither a log of inspect_ai, predictions of OpenCompass nor a list of objects")


def _evalplus(tasks: Mapping[str, Any]) -> list[AnswerRow]:
    """Return the samples of a file of EvalPlus's results; its verdict is on all tests where they were run."""
    rows: list[AnswerRow] = []
    for task, samples in tasks.items():
        for sample in map(_table, _list(samples)):
            base, plus = _score(sample.get("base_status")), _score(sample.get("plus_status"))
            verdicts = _verdicts(
                {"base_pass@1": base, "pass@1": None if plus is None else min(base or 0.0, plus)}
            )
            rows.append(
                AnswerRow(
                    number=len(rows) + 1,
                    ids={"task_id": task},
                    texts=_texts(sample.get("solution"), f"{task}, solution"),
                    provenance=Provenance(verdicts=verdicts, program="solution"),
                )
            )
    return rows


def _opencompass(rows: Mapping[str, Any]) -> list[AnswerRow]:
    """Return the predictions by index."""
    answers = []
    for number, (index, row) in enumerate(rows.items(), 1):
        if "prediction" not in row:
            raise ValueError(f"row {index!r} has no 'prediction'; it has {join_names(list(row), 8)}")
        prompt = row.get("origin_prompt", "")
        answers.append(
            AnswerRow(
                number=number,
                ids={"index": index},
                texts=_texts(row["prediction"], f"row {index!r}, field 'prediction'"),
                chat=isinstance(prompt, list),
                provenance=Provenance(
                    prompt=_text(prompt, f"row {index!r}, origin_prompt"),
                    verdicts=_verdicts({name: row[name] for name in VERDICTS if name in row}),
                ),
            )
        )
    return answers


# inspect_ai


def _unpacked(log: bytes) -> dict[str, Any]:
    """Return the JSON members of a log by name; of bounded size, whatever the archive says."""
    members: dict[str, Any] = {}
    most = min(MOST_UNPACKED, MOST_PACKED * len(log))
    with zipfile.ZipFile(io.BytesIO(log)) as archive:
        for member in archive.infolist():
            if member.filename != "header.json" and not member.filename.startswith("samples/"):
                continue
            with archive.open(member) as file:
                content = file.read(most + 1)
            most -= len(content)
            if most < 0:
                raise ValueError("it unpacks to a thousand times its size, or to more than 4 GiB")
            members[member.filename] = parse_json(content)
    return members


def _inspect(members: Mapping[str, Any]) -> tuple[Sequence[AnswerRow], Mapping[str, Any]]:
    header = _table(members.get("header.json"))
    samples = [sample for name, sample in members.items() if name != "header.json"] or header.get("samples")
    task, plan = _table(header.get("eval")), _table(_table(header.get("plan")).get("config"))
    rows = [_inspect_row(number, _table(sample)) for number, sample in enumerate(_list(samples), 1)]
    scorers = dict.fromkeys(name for row in rows for name in row.provenance.verdicts)
    asked = _known(
        task=task.get("task"),
        stop=plan.get("stop_seqs"),
        max_new_tokens=plan.get("max_tokens"),
        temperature=plan.get("temperature"),
        metric=next(iter(scorers), ""),
    )
    return rows, {"model": str(task.get("model") or ""), "asked": asked}


def _inspect_row(number: int, sample: Mapping[str, Any]) -> AnswerRow:
    where = f"sample {sample.get('id', number)!r}"
    output = _table(sample.get("output"))
    choice = _table(next(iter(output.get("choices") or []), None))
    text = output.get("completion") or _table(choice.get("message")).get("content", "")
    messages = [_table(message) for message in sample.get("messages") or []]
    sent = [message for message in messages if message.get("role") in ("system", "user")]
    scores = {str(name): _table(score) for name, score in _table(sample.get("scores")).items()}
    return AnswerRow(
        number=number,
        ids=_names(sample, ("id",)),
        question=_text(sample.get("input", ""), f"{where}, input"),
        texts=(_text(text, f"{where}, output"),),
        chat=bool(messages),
        cut=choice.get("stop_reason") == "max_tokens",
        provenance=Provenance(
            prompt=_text(sent or sample.get("input", ""), f"{where}, messages"),
            extracted={
                name: str(score["answer"])
                for name, score in scores.items()
                if score.get("answer") is not None
            },
            verdicts=_verdicts({name: score.get("value") for name, score in scores.items()}),
        ),
    )


# Parquet


def _parquet_answers(
    content: bytes, answer: str, id_field: str
) -> tuple[str, Sequence[AnswerRow], Mapping[str, Any]]:
    rows = _parquet_rows(content)
    if rows and DETAILS & rows[0].keys():
        return "details of lighteval", [_lighteval_row(number, row) for number, row in enumerate(rows, 1)], {}
    return _json_answers(rows, answer, id_field)


def _parquet_rows(content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a parquet file; of bounded size, whatever the file says."""
    try:
        from pyarrow import ArrowException, BufferReader, parquet
    except ImportError:
        raise ValueError("a parquet file needs the package pyarrow: pip install pyarrow") from None
    rows: list[dict[str, Any]] = []
    size = 0
    try:
        for batch in parquet.ParquetFile(BufferReader(content)).iter_batches(BATCH):
            size += batch.nbytes
            if size > MOST_UNPACKED:
                raise ValueError("it unpacks to more than 4 GiB")
            rows += batch.to_pylist()
    except ArrowException as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    return rows


def _lighteval_row(number: int, row: Mapping[str, Any]) -> AnswerRow:
    """Return a row of details; of old releases the columns are flat."""
    document, response = _table(row.get("doc")), _table(row.get("model_response"))
    prompt = response.get("input") or row.get("full_prompt") or document.get("query") or ""
    predictions = response.get("text") or row.get("predictions") or row.get("prediction") or []
    choices = document.get("choices") or row.get("choices") or []
    logprobs = response.get("logprobs") or []
    where = f"row {number}"
    is_choice = bool(choices) and len(logprobs) == len(choices)
    context = _text(prompt, where)
    return AnswerRow(
        number=number,
        ids=_names(document, ("id",)),
        question=_text(document.get("query") or row.get("example") or "", where),
        texts=() if is_choice else _texts(predictions, f"{where}, text"),
        choices=tuple(
            RecordedChoice(context, str(choice), float(logprob), is_greedy=False)
            for choice, logprob in zip(choices, logprobs, strict=False)
        )
        if is_choice
        else (),
        chat=isinstance(prompt, list),
        provenance=Provenance(
            prompt=context, verdicts=_verdicts(_table(row.get("metric") or row.get("metrics")))
        ),
    )
