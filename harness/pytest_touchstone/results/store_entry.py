"""The saved result of one checkpoint on one benchmark: its JSON form, and differences between two.

It is made from a run's summary and records.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.core.aggregation import (
    LOGPROB_MARGIN,
    MACRO,
    P_RIGHT,
    SOFT,
    Aggregation,
    aggregation_of,
    facts_beside,
    is_soft,
)
from pytest_touchstone.core.composite import Composite, composites_from_plain, parse_composite
from pytest_touchstone.core.coverage import largest_size, prompt_mark
from pytest_touchstone.core.errors import HarnessError, JournalError
from pytest_touchstone.core.files import SCHEMA, check_kind, from_plain
from pytest_touchstone.core.settings import known_conditions, manifest_conditions
from pytest_touchstone.results.journal import RecordLocation, latest_with_locations, read_record_at
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import (
    SUMMARY,
    BenchmarkResult,
    Declaration,
    Metric,
    Summary,
    whole_results,
)
from pytest_touchstone.statistics.paired import signed_ranks

_REAL: Final = {"real_coref:real@1": 0.4, "real_coref:real@5": 0.3}
DEFAULT_COMPOSITES: Final = (
    parse_composite("score", {**_REAL, "ko_lambada:lambada@1": 0.3}, "composite"),
    parse_composite("score_wiki", {**_REAL, "ko_lambada_wiki:lambada@1": 0.3}, "composite"),
)
"""The composites of results that do not name theirs, as published ones do not."""

OF_SCORING: Final = ("version", "data", "limit", "judged_by", "sandbox", "grader", "program_seconds")
"""The conditions that do not say how an answer was asked for."""

NOT_KNOWN: Final = "not known"
"""The value of a condition of answers that come from a file, and do not say how they were asked."""

IMPORTED_SUFFIX: Final = "-imported"
"""The end of the fingerprint of a result that was read from a table, whose checkpoint nobody has seen."""


@dataclass(frozen=True, kw_only=True)
class StoredResult(BenchmarkResult):
    """One checkpoint on one benchmark in one run.

    ``conditions`` has everything but the checkpoint that the scores may depend on, by the names shown to people
    ("version", "data", "shots", "template", "seed", "seq_len", ...). ``aggregate`` is the declaration's: metric ->
    the plain form of its ``Aggregation``; ``composites`` are plain too.

    ``faults`` counts items that should have been scored and were not; ``items_sha256`` is over the ids and rows of
    those that were. ``code`` is the hash of what scores (``plugin.source_hash``). ``began`` is in seconds since 1970.

    ``skips_declared``: what was skipped the benchmark itself leaves out (``pytest.skip``, a mark), so
    it is no part of it; an interim analysis (``gate_sequential``) skips what is one. ``temperature`` is that of
    ``p_right``, None where that is not known. ``verdicts``: what its own run's gate has found, by metric; empty where
    there was none. ``reference_runs``: the number of runs of which it is the mean, 0 for the result of one run.
    """

    run_id: str
    directory: str
    began: float
    fingerprint: str
    path: str
    step: int | None
    conditions: dict[str, Any]
    aggregate: dict[str, dict[str, Any]]
    faults: int
    items_sha256: str
    code: str | None = None
    checkpoint_info: dict[str, Any] = field(default_factory=dict)
    skips_declared: bool = False
    composites: list[dict[str, Any]] | None = None
    temperature: float | None = None
    verdicts: dict[str, str] = field(default_factory=dict)
    reference_runs: int = 0

    def aggregation(self, metric: str) -> Aggregation:
        """Return the aggregation of the metric, and whether higher is better."""
        return aggregation_of(self.aggregate, metric)

    @property
    def about(self) -> str:
        """Return what to show beside its values: the use of a chat template, and the mark; or empty."""
        template, few_shot = self.conditions.get("template"), self.conditions.get("few_shot") or {}
        if NOT_KNOWN in (template, few_shot):
            return self.mark
        shots, pick = int(self.conditions.get("shots") or 0), few_shot.get("pick")
        how = prompt_mark(shots, template, pick) if template == "chat" else ""
        return "; ".join(text for text in (how, self.mark) if text)

    @property
    def checkpoint_key(self) -> str:
        """Return what identifies the checkpoint: its fingerprint, else its path, else its name."""
        return self.fingerprint or self.path or f"name: {self.checkpoint}"

    @property
    def part(self) -> bool:
        """Return whether it is known to have fewer items than the benchmark has with this data."""
        return self.scored < self.of

    @property
    def size(self) -> int:
        """Return the largest known number of the benchmark's items, here or published; 0 if unknown."""
        return max(self.of, largest_size(self.mark))

    @property
    def published(self) -> bool:
        """Return whether it was imported from a file.

        The checkpoint is then known by its name alone, and items, if any, have ids of their own.
        """
        return self.fingerprint.endswith(IMPORTED_SUFFIX)

    @property
    def known(self) -> dict[str, Any]:
        """Return the known conditions, by today's rules: the ones that comparisons use."""
        return known_conditions(self.conditions, published=self.published)

    @property
    def complete(self) -> bool:
        """Return whether every item that counts has a score and the numbers are valid."""
        all_asked = self.skipped == 0 or self.skips_declared
        return self.faults == 0 and all_asked and self.invalid is None and self.scored > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemScores:
    """The scored items of a ``StoredResult``, in order of their ids, as columns of equal length.

    ``scores`` has None where an item has no such score; ``clusters`` is None throughout where items share nothing.
    ``facts`` are those that a metric takes beside a score (``Aggregation.beside``).
    """

    examples: list[str]
    rows: list[str]
    groups: list[str | None]
    clusters: list[str | None]
    scores: dict[str, list[float | None]]
    facts: dict[str, list[int | str | None]] = field(default_factory=dict)

    def named_as(self, other: ItemScores) -> ItemScores:
        """Return the items under the ids that they have in another result."""
        del other  # which has the same ids; those of a file of references are hashes
        return self

    def digest(self) -> str:
        """Return the SHA-256 over the ids and the hashes of the rows, independent of their order."""
        pairs = sorted(zip(self.examples, self.rows, strict=True))
        lines = "\n".join(f"{example}\t{row}" for example, row in pairs)
        return hashlib.sha256(lines.encode("utf-8", "backslashreplace")).hexdigest()


def composites_of(results: Iterable[StoredResult], more: Iterable[Composite] = ()) -> list[Composite]:
    """Return the composites that any of the results is part of, and ``more``; of one name the first."""
    composites = {composite.name: composite for composite in more}
    for saved in results:
        kept = DEFAULT_COMPOSITES if saved.composites is None else composites_from_plain(saved.composites)
        for composite in kept:
            if saved.benchmark in composite.benchmarks:
                composites.setdefault(composite.name, composite)
    return list(composites.values())


def saved_json(saved: StoredResult) -> dict[str, Any]:
    """Return the entry as a JSON object."""
    return {"schema": SCHEMA, "kind": "saved", **asdict(saved)}


def saved_from_json(data: Mapping[str, Any]) -> StoredResult:
    """Return the entry that ``saved_json`` wrote. Raises ``HarnessError`` saying what is wrong with any other
    object."""
    check_kind(data, "saved")
    try:
        saved = from_plain(StoredResult, data)
    except ValueError as error:
        raise HarnessError(f"incomplete saved result: {error}") from None
    if saved.primary not in saved.metrics:
        raise HarnessError(f"incomplete saved result: no metric {saved.primary[:60]!r}, its primary one")
    return saved


def items_json(items: ItemScores) -> dict[str, Any]:
    """Return the scores as a JSON object."""
    # Not copied: they are long.
    return {"schema": SCHEMA, "kind": "saved items"} | {
        column.name: getattr(items, column.name) for column in fields(items)
    }


def items_from_json(data: Mapping[str, Any]) -> ItemScores:
    """Return the scores that ``items_json`` wrote. Raises ``HarnessError`` saying what is wrong with any other
    object."""
    check_kind(data, "saved items")
    try:
        items = from_plain(ItemScores, data)
    except ValueError as error:
        raise HarnessError(f"incomplete saved items: {error}") from None
    columns: list[list[Any]] = [items.examples, items.rows, items.groups, items.clusters]
    lengths = {len(column) for column in (*columns, *items.scores.values(), *items.facts.values())}
    if len(lengths) > 1:
        raise HarnessError(
            f"saved items with columns of {sorted(lengths)} entries; they must have the same number"
        )
    return items


def stored_result(
    declaration: Declaration,
    manifest: Mapping[str, Any],
    row: Mapping[str, Any],
    *,
    run_id: str,
    directory: str,
    checkpoint: str,
    chat: bool,
    metrics: Mapping[str, Metric],
    collected: int,
) -> StoredResult:
    """Return the result of a checkpoint on a benchmark of a run in which every item is scored.

    ``row`` is the checkpoint's in the manifest; one without a fingerprint (of another program) gets "". The
    conditions are the benchmark, its data, the way of asking (``chat``: through a chat template), and the relevant
    settings of the manifest.
    """
    few_shot = {name: value for name, value in declaration.few_shot.items() if name != "num_fewshot"}
    conditions = {
        "version": declaration.version,
        "data": declaration.dataset.sha256,
        "shots": int(declaration.few_shot.get("num_fewshot") or 0),
        "few_shot": few_shot,
        "template": "chat" if chat else "plain",
        **manifest_conditions({**manifest.get("settings", {}), **declaration.settings}),
    }
    if answers := row.get("answers"):
        unknown = (name for name in conditions if name not in OF_SCORING)
        asked = ", ".join(f"{name} {value}" for name, value in answers["asked"].items())
        conditions |= dict.fromkeys(unknown, NOT_KNOWN)
        conditions["answers"] = f"{answers['kind']} ({asked or NOT_KNOWN})"
    return StoredResult(
        run_id=run_id,
        directory=directory,
        began=float(manifest.get("began") or 0.0),
        checkpoint=checkpoint,
        fingerprint=row.get("fingerprint") or "",
        path=row.get("path") or "",
        step=step_of_row(row),
        benchmark=declaration.name,
        primary=declaration.primary,
        conditions=conditions,
        aggregate=declaration.aggregate,
        metrics=dict(metrics),
        collected=collected,
        scored=collected,
        skipped=0,
        faults=0,
        invalid=None,
        items_sha256="",
        checkpoint_info=dict(row),
        composites=declaration.composites,
        temperature=declaration.temperature,
    )


def soft_score_mismatch(result: StoredResult, other: StoredResult, metric: str) -> str:
    """Return why the soft scores of two results differ in meaning, from the first one's view; else empty."""
    if is_soft(metric) and metric not in result.metrics:
        return f"has no {metric}"
    temperature, other_temperature = result.temperature, other.temperature
    if (
        metric.removesuffix(MACRO) != P_RIGHT
        or temperature is None
        or other_temperature is None
        or temperature == other_temperature
    ):
        return ""
    return f"has {metric} at temperature {temperature:g}, not {other_temperature:g}"


def results_from_records(
    summary: Summary, records: Iterable[Record]
) -> list[tuple[StoredResult, ItemScores]]:
    """Return an entry for each checkpoint and benchmark of the run."""
    results: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status == "scored":
            results.setdefault((record.checkpoint, record.benchmark), []).append(record)
    beside = extra_facts_of(summary)
    items = {key: item_scores_of(scored, beside.get(key[1], ())) for key, scored in results.items()}
    return results_with_items(summary, items)


def extra_facts_of(summary: Summary) -> dict[str, tuple[str, ...]]:
    """Return the facts that metrics take beside scores, of the benchmarks that have such metrics."""
    facts_of = {declaration.name: facts_beside(declaration.aggregate) for declaration in summary.declarations}
    return {name: facts for name, facts in facts_of.items() if facts}


def results_with_items(
    summary: Summary, scores: Mapping[tuple[str, str], ItemScores]
) -> list[tuple[StoredResult, ItemScores]]:
    """Return the same from the scored items by checkpoint and benchmark."""
    rows = {row["name"]: row for row in summary.checkpoints}
    declared = {declaration.name: declaration for declaration in summary.declarations}
    stored = []
    for result in whole_results(summary):
        if result.benchmark not in declared:
            raise HarnessError(f"{summary.directory}: its {SUMMARY} declares no {result.benchmark[:60]!r}")
        items = scores.get((result.checkpoint, result.benchmark)) or item_scores_of([])
        whole = stored_result(
            declared[result.benchmark],
            summary.manifest,
            rows.get(result.checkpoint, {}),
            run_id=summary.run_id,
            directory=summary.directory,
            checkpoint=result.checkpoint,
            chat=bool(result.chat),
            metrics=result.metrics,
            collected=result.collected,
        )
        saved = replace(
            whole,
            scored=result.scored,
            skipped=result.skipped,
            faults=result.faults,
            invalid=result.invalid,
            items_sha256=items.digest(),
            code=declared[result.benchmark].code or None,
            reused_from=result.reused_from,
            of=result.of,
            mark=result.mark,
            skips_declared=not summary.manifest.get("settings", {}).get("gate_sequential"),
        )
        stored.append((saved, items))
    return stored


def item_scores_of(records: Iterable[Record], beside: Iterable[str] = ()) -> ItemScores:
    """Return the scores of scored records and the facts ``beside`` them, in order of the examples' ids."""
    ordered = sorted(records, key=lambda record: record.example)
    names = dict.fromkeys(name for record in ordered for name in record.scores)
    columns = {name: [record.scores.get(name) for record in ordered] for name in names}
    if LOGPROB_MARGIN in columns:  # a soft score depends on the margins of all the others
        ranks = iter(signed_ranks([margin for margin in columns[LOGPROB_MARGIN] if margin is not None]))
        columns[SOFT] = [None if margin is None else next(ranks) for margin in columns[LOGPROB_MARGIN]]
    return ItemScores(
        examples=[sys.intern(record.example) for record in ordered],  # other checkpoints have the same ones
        rows=[sys.intern(record.row) for record in ordered],
        groups=[record.group for record in ordered],
        clusters=[record.cluster for record in ordered],
        scores=columns,
        # A fact is told as a list of one number; there is none where the benchmark told nothing.
        facts={
            name: [((record.facts or {}).get(name) or [None])[0] for record in ordered] for name in beside
        },
    )


# From a run's journal


@dataclass(frozen=True, slots=True)
class RecordLocations:
    """The places of the records of a result's items."""

    examples: Sequence[str]
    places: Sequence[RecordLocation]

    def of(self, examples: Container[str]) -> Iterator[Record]:
        """Yield the records of these items. Raises ``JournalError`` where one is there no more."""
        pairs = zip(self.examples, self.places, strict=True)
        return (_read(example, location) for example, location in pairs if example in examples)

    def each(self) -> Iterator[Record]:
        """Yield all records, each read when it is asked for. Raises ``JournalError`` where one is there no more."""
        return map(_read, self.examples, self.places)


def _read(example: str, location: RecordLocation) -> Record:
    record = read_record_at(location)
    if record.example != example:
        raise JournalError(f"{location.path}, line {location.line}: not the record of {example} any more")
    return record


class ScoredItems(NamedTuple):
    """The scored items of a checkpoint on a benchmark, and their lines."""

    items: ItemScores
    lines: RecordLocations


def read_scores(
    directory: Path, beside: Mapping[str, Collection[str]] = MappingProxyType({})
) -> dict[tuple[str, str], ScoredItems]:
    """Return the scored items by checkpoint and benchmark, one record each as ``latest_records`` chooses.

    ``beside`` is as ``extra_facts_of`` gives it. Raises ``JournalError`` naming file and line of an invalid record.
    """
    results: dict[tuple[str, str], list[tuple[Record, RecordLocation]]] = {}
    for record, location in latest_with_locations(directory, heads=not beside).values():
        if record.status == "scored":
            results.setdefault((record.checkpoint, record.benchmark), []).append((record, location))
    scored = {}
    for key, pairs in results.items():
        pairs.sort(key=lambda pair: pair[0].example)
        items = item_scores_of((record for record, _ in pairs), beside.get(key[1], ()))
        scored[key] = ScoredItems(items, RecordLocations(items.examples, [location for _, location in pairs]))
    return scored
