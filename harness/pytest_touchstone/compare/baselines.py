"""Choose the saved results that a new result is compared with.

    best      the saved results of all earlier runs on the same benchmark under the same conditions, one for each
              checkpoint: its best, or the newest of equals. The new result is judged against the best of them.
    a run     the results of one run, whichever checkpoints it has; a pinned baseline is one checkpoint of a run
    none      nothing

A baseline must be complete: without faults, with no skipped items except those that the benchmark leaves out itself,
and valid. It must have the same items and conditions, except for the conditions that the user allows to differ. If
"items" may differ, the common items are compared.

``best`` ignores results on other items, so that a trial run of two items does not block a full run, nor the reverse; a
note counts them. If no result is left, nothing is compared: the new result is then "first", or "apart" if an earlier
result has items that it lacks, and every report says so. A run that the user names must have the same items.

A second run of a checkpoint is not compared with its own first one if other checkpoints have results under other
conditions: the data may have changed between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pytest_touchstone.compare.benchmark_comparison import REFERENCES
from pytest_touchstone.compare.candidate import NO_ITEMS, BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import (
    ItemDifferences,
    item_differences,
    rows_of,
    score_name,
)
from pytest_touchstone.compare.prompts import OTHERS, PROMPTS, changed_text
from pytest_touchstone.core.settings import OF_ENGINES, differing_conditions
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, soft_score_mismatch

ITEMS: Final = "items"
ROWS: Final = ("version", "data")
"""Conditions that determine the rows of a benchmark."""

FIRST_ON_ITEMS: Final = "no baseline yet on these items: this result is the first"

HASH_SHOWN: Final = 8

NO_REFERENCE: Final = "higher, and no reference, since the gate of its own run could not tell"
"""The prefix of the note on results that score higher than the baselines and are no reference."""

State = Literal["chosen", "first", "apart", "absent", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSource:
    """A source of baselines: its results, and a function that loads their items.

    ``name`` is for messages. ``damaged`` has a line for each saved result that cannot be read.
    """

    name: str
    kind: Literal["best", "run", "none"]
    saved: Sequence[StoredResult] = ()
    items: Callable[[StoredResult], ItemScores] = lambda _: NO_ITEMS
    damaged: Sequence[str] = ()

    def load(self, saved: StoredResult) -> BenchmarkScores:
        """Return the result with its items; raises ``DataError`` if they are gone or cannot be read."""
        return BenchmarkScores(saved, self.items(saved))


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChoice:
    """The baselines of a result, or the reason why there are none.

    ``state`` is

    - "chosen": ``baselines`` has at least one result
    - "first": no earlier result of the benchmark has these items
    - "apart": every earlier result has items that the new one lacks
    - "absent": the source has no result of the benchmark
    - "refused": any other ``reason``

    ``part`` tells how many items of an earlier result the new one has if it lacks some, such as "2 of 400 items".
    ``notes`` are for a reader.
    """

    state: State
    baselines: tuple[BenchmarkScores, ...] = ()
    reason: str = ""
    part: str = ""
    notes: tuple[str, ...] = ()


def find_baselines(
    new: BenchmarkScores, source: BaselineSource, *, metric: str, allow: Iterable[str] = ()
) -> BaselineChoice:
    """Return the baselines of a source for a new result.

    Args:
        new: The new result, with its items.
        source: The candidates for baselines.
        metric: The metric that ranks the results of a checkpoint.
        allow: The names of conditions that may differ.

    Raises:
        GateError: If the new result lacks the metric.

    """
    score_name(new.saved, metric)
    allowed = set(allow)
    earlier = _earlier_results(new.saved, source)
    whole = [saved for saved in earlier if saved.complete]
    if not whole:
        return _no_complete_result(earlier, source)
    if source.kind == "best":
        unsettled = [saved for saved in whole if not is_reference(saved, metric)]
        whole = [saved for saved in whole if is_reference(saved, metric)] or whole
        other_items = BaselineChoice(state="first")
        if ITEMS not in allowed:
            whole, others = _split_by_items(new, whole, allowed)
            other_items = _describe_other_items(new, others, source)
        if not whole:
            return other_items
        choice = _choose_comparable(new, whole, source, metric, allowed)
        notes = (
            *choice.notes,
            *other_items.notes,
            *_notes_on_unsettled(new.saved, unsettled, choice, metric),
        )
        return replace(choice, part=other_items.part, notes=notes)
    return _choose_comparable(new, whole, source, metric, allowed)


def is_reference(saved: StoredResult, metric: str) -> bool:
    """Return whether a result may be a reference; a result with an inconclusive verdict may not."""
    return saved.verdicts.get(metric, "first") in REFERENCES


def _notes_on_unsettled(
    new: StoredResult, unsettled: Iterable[StoredResult], choice: BaselineChoice, metric: str
) -> list[str]:
    """Return the note on results that score higher than all baselines and are no reference."""
    best = max((orient_higher_is_better(entry.saved, metric) for entry in choice.baselines), default=math.inf)
    higher = [
        saved for saved in comparable_results(new, unsettled) if orient_higher_is_better(saved, metric) > best
    ]
    return [f"{NO_REFERENCE}: {join_names(map(origin, higher), 3)}"] if higher else []


def _choose_comparable(
    new: BenchmarkScores,
    complete: Sequence[StoredResult],
    source: BaselineSource,
    metric: str,
    allowed: set[str],
) -> BaselineChoice:
    """Choose the complete results that are comparable with the new one."""
    comparable, reason = _results_asked_alike(new.saved, complete, source, metric, allowed)
    if reason:
        return BaselineChoice(state="refused", reason=reason)
    # One for each checkpoint and set of items, so that a result on fewer items hides no other.
    entries = [
        source.load(saved)
        for same in _group_by_items(comparable).values()
        for saved in best_per_checkpoint(same, metric)
    ]
    changed = {} if PROMPTS in allowed else {id(entry): changed_text(entry, new) for entry in entries}
    same_prompts = [entry for entry in entries if not changed.get(id(entry))]
    if not same_prompts:
        reason = (
            f"{origin(entries[-1].saved)} is not comparable: {changed[id(entries[-1])]}; raise the version and score "
            f"it again, or allow it with --eval-baseline-allow {_allow_option([PROMPTS], allowed)}"
        )
        return BaselineChoice(state="refused", reason=reason)
    left_out = [origin(entry.saved) for entry in entries if changed.get(id(entry))]
    choice = _choose_on_same_items(new, same_prompts, metric, allowed)
    return replace(choice, notes=(*choice.notes, f"{OTHERS}: {join_names(left_out)}")) if left_out else choice


def _results_asked_alike(
    new: StoredResult,
    whole: Sequence[StoredResult],
    source: BaselineSource,
    metric: str,
    allowed: set[str],
) -> tuple[list[StoredResult], str]:
    """Return the complete results with the new one's conditions, and the reason if there are none."""
    if all(saved.published for saved in whole):
        reason = f"{origin(whole[-1])} was published: a gate compares items that were run here"
        return [], f"{reason}; `touchstone compare` compares totals"
    comparable = [saved for saved in whole if not _differing_conditions(new, saved, allowed)]
    others = [saved for saved in whole if saved.checkpoint_key != new.checkpoint_key]
    only_itself = source.kind == "best" and not any(saved in others for saved in comparable)
    if not comparable or (only_itself and others):
        return [], _conditions_reason(new, others or whole, allowed)
    other_measures = {
        id(saved): difference
        for saved in comparable
        if (difference := soft_score_mismatch(saved, new, metric))
    }
    if len(other_measures) == len(comparable):
        last = comparable[-1]
        again = f"`touchstone score {last.run_id} -o FOLDER` makes it of the stored answers, for --baseline FOLDER"
        return [], f"{origin(last)} {other_measures[id(last)]}: {again}"
    return [saved for saved in comparable if id(saved) not in other_measures], ""


def expected_refusal(
    new: StoredResult, examples: Collection[str], source: BaselineSource, allow: Iterable[str]
) -> str:
    """Return the reason why a coming result cannot be judged against the source; empty if none is foreseeable.

    Prompts, the chat template and skipped items are known only after the run.

    Args:
        new: The coming result, without numbers.
        examples: The ids of its examples.
        source: The candidates for baselines.
        allow: The names of conditions that may differ.

    """
    allowed, metric = set(allow), new.primary
    complete = [saved for saved in _earlier_results(new, source) if saved.complete and not saved.published]
    on_these_rows = [saved for saved in complete if saved.known["data"] == new.known["data"]]
    if not complete or not (on_these_rows or "data" not in allowed):
        return ""
    # An earlier result on the same data has the rows of the new one.
    largest = source.load(max(on_these_rows or complete, key=lambda saved: saved.scored))
    if metric not in largest.saved.metrics:
        return ""
    score, template = score_name(largest.saved, metric), largest.saved.known["template"]
    rows = {name: row for name, row in rows_of(largest.items, score).items() if name in examples}
    if source.kind == "best" and on_these_rows and len(rows) < len(examples):
        return ""
    no_names: list[str | None] = [None] * len(rows)
    items = ItemScores(
        examples=[*rows],
        rows=[*rows.values()],
        groups=no_names,
        clusters=no_names,
        scores={score: [0.0] * len(rows)},
    )
    new = replace(new, metrics=largest.saved.metrics, conditions={**new.conditions, "template": template})
    expected = BenchmarkScores(new, items)
    if source.kind == "best" and ITEMS not in allowed:
        complete, _ = _split_by_items(expected, complete, allowed)
    comparable, reason = (
        _results_asked_alike(new, complete, source, metric, allowed) if complete else ([], "")
    )
    if reason or source.kind == "best" or ITEMS in allowed:
        return reason
    return _choose_on_same_items(
        expected, [source.load(saved) for saved in comparable], metric, allowed
    ).reason


def _group_by_items(results: Iterable[StoredResult]) -> dict[str, list[StoredResult]]:
    by_items: dict[str, list[StoredResult]] = {}
    for saved in results:
        by_items.setdefault(saved.items_sha256, []).append(saved)
    return by_items


def _split_by_items(
    new: BenchmarkScores, results: Sequence[StoredResult], allowed: set[str]
) -> tuple[list[StoredResult], list[StoredResult]]:
    """Split results into those to choose from and those on other items.

    A result on other rows (another version or other data) is among the former, unless it is a partial one.
    """
    mine = new.saved.items_sha256 or new.items.digest()

    def has_other_items(saved: StoredResult) -> bool:
        same_rows = not set(ROWS).intersection(_differing_conditions(new.saved, saved, allowed))
        return saved.items_sha256 != mine and (_is_partial(saved) or same_rows)

    others = [saved for saved in results if has_other_items(saved)]
    return [saved for saved in results if not any(saved is other for other in others)], others


def _is_partial(saved: StoredResult) -> bool:
    """Return whether a result is over some of its rows only."""
    return saved.conditions.get("limit") is not None or 0 < saved.collected < saved.of


def _describe_other_items(
    new: BenchmarkScores, others: Sequence[StoredResult], source: BaselineSource
) -> BaselineChoice:
    """Return a note on earlier results on other items, and the state if there are no further results."""
    if not others:
        return BaselineChoice(state="first")
    overlaps = [
        (same[-1], *_overlap(new.items, source.load(same[-1]).items))
        for same in _group_by_items(others).values()
    ]
    lacking = [overlap for overlap in overlaps if overlap[2]]
    saved, shared, missing = max(lacking or overlaps, key=lambda overlap: (overlap[2], _age(overlap[0])))
    here, there = len(new.items.examples), shared + missing
    extent = f"{shared} of {here} items"
    if missing:
        extent = f"{there} items, of which this run{f' of {here}' if here > shared else ''} has {shared}"
    noun = "result is" if len(others) == 1 else "results are"
    which = "" if len(others) == 1 else "such as "
    note = f"{len(others)} earlier {noun} on other items and not used: {which}{origin(saved)}, {extent}"
    if not lacking:
        return BaselineChoice(state="first", reason=FIRST_ON_ITEMS, notes=(note,))
    return BaselineChoice(
        state="apart",
        reason=f"nothing was compared: no earlier result has just these items; {origin(saved)} has others",
        part=f"{shared} of {there} items",
        notes=(note,),
    )


def _overlap(mine: ItemScores, other: ItemScores) -> tuple[int, int]:
    """Return the numbers of items that two results share, and that only the other has."""
    rows = dict(zip(other.examples, other.rows, strict=True))
    shared = sum(rows.get(name) == row for name, row in zip(mine.examples, mine.rows, strict=True))
    return shared, len(other.examples) - shared


def comparable_results(new: StoredResult, results: Iterable[StoredResult]) -> list[StoredResult]:
    """Return the complete results of earlier runs with equal conditions and items, from which ``best`` chooses."""
    return [
        saved
        for saved in _results_of_earlier_runs(new, results)
        if saved.complete
        and saved.items_sha256 == new.items_sha256
        and not _differing_conditions(new, saved, ())
    ]


def best_per_checkpoint(results: Iterable[StoredResult], metric: str) -> list[StoredResult]:
    """Return the best result of each checkpoint by a metric (the newest of equals), oldest checkpoint first.

    Results without a value count only if no result has one.
    """
    by_checkpoint: dict[str, StoredResult] = {}
    candidates = list(results)
    candidates = [
        saved for saved in candidates if math.isfinite(orient_higher_is_better(saved, metric))
    ] or candidates
    for saved in sorted(candidates, key=lambda saved: (orient_higher_is_better(saved, metric), *_age(saved))):
        by_checkpoint[saved.checkpoint_key] = saved
    return sorted(by_checkpoint.values(), key=_age)


def orient_higher_is_better(saved: StoredResult, metric: str) -> float:
    """Return the metric's value with the sign that makes larger better; -inf if undefined."""
    value = saved.metrics[metric].value if metric in saved.metrics else None
    sign = 1 if saved.aggregation(metric).higher_is_better else -1
    return float("-inf") if value is None else sign * value


def _age(saved: StoredResult) -> tuple[float, str, str]:
    return saved.began, saved.run_id, saved.checkpoint


def format_condition(value: Any, *, unset: str = "default") -> str:
    """Return the value of a condition as text: hashes shortened, and None as ``unset``."""
    if isinstance(value, str) and len(value) == 64:
        return value[:HASH_SHOWN]
    return unset if value is None else str(value)


def origin(saved: StoredResult) -> str:
    """Return the name of a result in messages: the checkpoint and its run."""
    return f"{saved.checkpoint} in {saved.run_id}"


def _earlier_results(new: StoredResult, source: BaselineSource) -> list[StoredResult]:
    """Return the source's results of the benchmark; for ``best``, those of earlier runs."""
    if source.kind == "best":
        return _results_of_earlier_runs(new, source.saved)
    return [saved for saved in source.saved if saved.benchmark == new.benchmark]


def _results_of_earlier_runs(new: StoredResult, results: Iterable[StoredResult]) -> list[StoredResult]:
    """Return the results of the benchmark from earlier runs; those of a fake model only for a fake model."""
    fake = _is_fake(new)
    return [
        saved
        for saved in results
        if saved.benchmark == new.benchmark
        and (fake or not _is_fake(saved))
        and not saved.published
        and saved.run_id != new.run_id
        and saved.began < new.began
    ]


def _is_fake(saved: StoredResult) -> bool:
    """Return whether the answers are those of ``fake:causal`` or ``fake:masked``."""
    return saved.checkpoint_info.get("model_type") == "fake"


def _no_complete_result(earlier: Sequence[StoredResult], source: BaselineSource) -> BaselineChoice:
    """Return the choice for a benchmark without a complete result."""
    if source.kind == "best":
        notes = [f"{origin(saved)} is not used: {incomplete_reason(saved)}" for saved in earlier[-1:]]
        return BaselineChoice(state="first", notes=tuple(notes))
    if not earlier:
        return BaselineChoice(state="absent", reason=f"{source.name} has no result of it")
    reason = f"{origin(earlier[-1])} is not whole: {incomplete_reason(earlier[-1])}"
    return BaselineChoice(state="refused", reason=reason)


def flaw_of(results: Iterable[StoredResult]) -> str:
    """Return the first reason why the results give no verdict, such as failed items; empty without one.

    Skipped items are no flaw: those that remain are compared.
    """
    for saved in results:
        metric = saved.metrics.get(saved.primary)
        if saved.faults or saved.invalid:
            return incomplete_reason(saved)
        if metric is not None and metric.value is None:
            return f"{saved.primary} is undefined, {metric.why}"
    return ""


def incomplete_reason(saved: StoredResult) -> str:
    """Return the reasons why a result is not complete."""
    reasons = (
        [f"{saved.faults} of {saved.collected} items ended in error or were lost"] if saved.faults else []
    )
    reasons += [f"{saved.skipped} of {saved.collected} items were skipped"] if saved.skipped else []
    reasons += [saved.invalid] if saved.invalid else []
    return "; ".join(reasons) or "no item has a score"


def _differing_conditions(
    new: StoredResult, other: StoredResult, allowed: Iterable[str]
) -> Mapping[str, tuple[Any, Any]]:
    # References are compared with another engine on purpose.
    others = OF_ENGINES if other.reference_runs else ()
    return differing_conditions(new.known, other.known, {*allowed, *others})


def _conditions_reason(new: StoredResult, results: Sequence[StoredResult], allowed: set[str]) -> str:
    """Return what differs from the most similar result (the newest of equals), and what to do."""
    nearest = min(reversed(results), key=lambda saved: len(_differing_conditions(new, saved, allowed)))
    fields = _differing_conditions(new, nearest, allowed)
    return (
        f"{origin(nearest)} is not comparable: {_describe_differences(fields)}; score it again under these conditions, "
        f"or allow it with --eval-baseline-allow {_allow_option(fields, allowed)}"
    )


def _describe_differences(fields: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the differing conditions in words.

    Other rows, or another number of few-shot examples, imply other few-shot examples, which are not listed then.
    """
    implied = {"few_shot"} if fields.keys() & {"shots", "data"} else set()
    differences = []
    for name, (mine, other) in fields.items():
        if name in _UNREADABLE_CONDITIONS:
            hashes = (
                f" (sha256 {format_condition(mine)} here, {format_condition(other)} there)"
                if isinstance(mine, str)
                else ""
            )
            differences += [] if name in implied else [_UNREADABLE_CONDITIONS[name] + hashes]
        else:
            differences.append(f"{name} is {format_condition(mine)} here and {format_condition(other)} there")
    return ", ".join(differences)


_UNREADABLE_CONDITIONS: Final = {
    "data": "its rows are others",
    "few_shot": "its few-shot examples are others",
}
"""Texts for conditions whose values (hashes) mean nothing to a person."""


def _choose_on_same_items(
    new: BenchmarkScores, entries: Sequence[BenchmarkScores], metric: str, allowed: set[str]
) -> BaselineChoice:
    """Choose the results with the new one's items, or if items may differ, those that share most of them."""
    score = score_name(new.saved, metric)
    compared = [(entry, item_differences(new.items, entry.items, score)) for entry in entries]
    if ITEMS in allowed:
        return _choose_on_most_items(compared, metric)
    lacking = [
        (entry, differences) for entry, differences in compared if differences.missing or differences.changed
    ]
    same = [entry for entry, differences in compared if not differences]
    if lacking or not same:
        entry, differences = max(
            lacking or compared, key=lambda pair: len(pair[1].missing) + len(pair[1].changed)
        )
        reason = (
            f"{origin(entry.saved)} has other items: {differences.text()}; run the same items, "
            f"or compare the common ones with --eval-baseline-allow {_allow_option([ITEMS], allowed)}"
        )
        return BaselineChoice(state="refused", reason=reason)
    fewer = len(compared) - len(same)
    noun = "result has" if fewer == 1 else "results have"
    notes = (f"{fewer} comparable {noun} fewer items: not used",) if fewer else ()
    return BaselineChoice(state="chosen", baselines=_best_entries(same, metric), notes=notes)


def _choose_on_most_items(
    compared: Sequence[tuple[BenchmarkScores, ItemDifferences]], metric: str
) -> BaselineChoice:
    most = max(differences.shared for _, differences in compared)
    largest = [(entry, differences) for entry, differences in compared if differences.shared == most]
    if not most:
        return BaselineChoice(
            state="refused", reason=f"{origin(compared[-1][0].saved)} has no item in common with this run"
        )
    text = next((differences.text() for _, differences in largest if differences), "")
    notes = (f"compared on {most} common items ({text})",) if text else ()
    return BaselineChoice(
        state="chosen", baselines=_best_entries([entry for entry, _ in largest], metric), notes=notes
    )


def _best_entries(entries: Sequence[BenchmarkScores], metric: str) -> tuple[BenchmarkScores, ...]:
    kept = best_per_checkpoint((entry.saved for entry in entries), metric)
    return tuple(entry for saved in kept for entry in entries if entry.saved is saved)


def _allow_option(names: Iterable[str], allowed: set[str]) -> str:
    """Return the value for ``--eval-baseline-allow`` that allows these too."""
    return ",".join((*sorted(allowed), *names))
