"""The choice of the saved results that a new one is compared with.

    best      the saved results of the same benchmark under the same conditions, of every other run that began earlier;
              one per checkpoint: of several its best, so that a second try is not compared with the first, and of
              equal ones the newest. Judged against the best of them.
    a run     the results of one run, whichever checkpoints it has; a pinned one is one checkpoint of a run
    none      nothing

A result serves as a baseline only where it is whole: no faults, nothing skipped but what the benchmark itself leaves
out, nothing known against its numbers.
Its items must be the same, and its conditions too, but for those that are allowed to differ by name. Where "items"
are allowed to differ, the common ones are compared.

``best`` leaves results on other items alone: a trial run of two items is no reason to refuse a whole one, nor the
other way round. They are counted in a note. Where there is nothing else, nothing is compared. The result is then
"first", or "apart" where an earlier one has items that it lacks, and every report says so. A run that was named, by
contrast, must have the same items.

Where the only comparable results are of the very checkpoint, while others have results under other conditions, nothing
is judged: a second try after the data were changed is not compared with the first.
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
from pytest_touchstone.core.settings import differing_conditions
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, other_measure

ITEMS: Final = "items"
ROWS: Final = ("version", "data")
"""Conditions that say which rows a benchmark has."""

FIRST_ON_ITEMS: Final = "no baseline yet on these items: this result is the first"

HASH_SHOWN: Final = 8

NO_REFERENCE: Final = "higher, and no reference, since the gate of its own run could not tell"
"""The beginning of the note on such results."""

State = Literal["chosen", "first", "apart", "absent", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSource:
    """A source of baselines: its name in messages, its kind, its results, and a way to load their items.

    ``damaged`` has a line for each saved result that cannot be read, and is left out.
    """

    name: str
    kind: Literal["best", "run", "none"]
    saved: Sequence[StoredResult] = ()
    items: Callable[[StoredResult], ItemScores] = lambda _: NO_ITEMS
    damaged: Sequence[str] = ()

    def load(self, saved: StoredResult) -> BenchmarkScores:
        """The result with its items; raises ``DataError`` where they are gone or cannot be read."""
        return BenchmarkScores(saved, self.items(saved))


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChoice:
    """The baselines of a result. ``state`` is "chosen" where ``baselines`` has at least one. It is "first" where no
    earlier result of this benchmark is on its items, or on more, and "apart" where all earlier ones have items that
    it lacks. It is "absent" where the baseline has no result of the benchmark, and else "refused", with ``reason``.
    ``part``: how many of an earlier result's items it has, where it lacks some, such as "2 of 400 items". ``notes``
    are for a reader."""

    state: State
    baselines: tuple[BenchmarkScores, ...] = ()
    reason: str = ""
    part: str = ""
    notes: tuple[str, ...] = ()


def find_baselines(
    new: BenchmarkScores, source: BaselineSource, *, metric: str, allow: Iterable[str] = ()
) -> BaselineChoice:
    """The source's baselines for the new result, by this metric.

    Raises ``GateError`` for a metric that the new result has not.
    """
    score_name(new.saved, metric)
    allowed = set(allow)
    earlier = _earlier(new.saved, source)
    whole = [saved for saved in earlier if saved.complete]
    if not whole:
        return _nothing(earlier, source)
    if source.kind == "best":
        unsettled = [saved for saved in whole if not is_reference(saved, metric)]
        whole = [saved for saved in whole if is_reference(saved, metric)] or whole
        beside = BaselineChoice(state="first")
        if ITEMS not in allowed:
            whole, others = _on_the_same_items(new, whole, allowed)
            beside = _beside(new, others, source)
        if not whole:
            return beside
        choice = _held(new, whole, source, metric, allowed)
        notes = (*choice.notes, *beside.notes, *_not_references(new.saved, unsettled, choice, metric))
        return replace(choice, part=beside.part, notes=notes)
    return _held(new, whole, source, metric, allowed)


def is_reference(saved: StoredResult, metric: str) -> bool:
    """Return whether others may be compared with a result: one that its own gate could not settle is not the best."""
    return saved.verdicts.get(metric, "first") in REFERENCES


def _not_references(
    new: StoredResult, unsettled: Iterable[StoredResult], choice: BaselineChoice, metric: str
) -> list[str]:
    """The note on results that measure more than every baseline, and are none."""
    most = max((orient_higher_is_better(entry.saved, metric) for entry in choice.baselines), default=math.inf)
    higher = [saved for saved in comparable(new, unsettled) if orient_higher_is_better(saved, metric) > most]
    return [f"{NO_REFERENCE}: {join_names(map(origin, higher), 3)}"] if higher else []


def _held(
    new: BenchmarkScores,
    whole: Sequence[StoredResult],
    source: BaselineSource,
    metric: str,
    allowed: set[str],
) -> BaselineChoice:
    """Those of the whole results that the new one can be compared with."""
    comparable, reason = _asked_alike(new.saved, whole, source, metric, allowed)
    if reason:
        return BaselineChoice(state="refused", reason=reason)
    # One of each checkpoint on each set of items: a result on fewer items hides no other.
    entries = [
        source.load(saved)
        for same in _by_items(comparable).values()
        for saved in best_per_checkpoint(same, metric)
    ]
    changed = {} if PROMPTS in allowed else {id(one): changed_text(one, new) for one in entries}
    alike = [one for one in entries if not changed.get(id(one))]
    if not alike:
        reason = (
            f"{origin(entries[-1].saved)} is not comparable: {changed[id(entries[-1])]}; raise the version and score "
            f"it again, or allow it with --eval-baseline-allow {_allowing([PROMPTS], allowed)}"
        )
        return BaselineChoice(state="refused", reason=reason)
    left_out = [origin(one.saved) for one in entries if changed.get(id(one))]
    found = _same_items(new, alike, metric, allowed)
    return replace(found, notes=(*found.notes, f"{OTHERS}: {join_names(left_out)}")) if left_out else found


def _asked_alike(
    new: StoredResult,
    whole: Sequence[StoredResult],
    source: BaselineSource,
    metric: str,
    allowed: set[str],
) -> tuple[list[StoredResult], str]:
    """Those of the whole results that were asked as the new one is; else the reason why nothing can be judged."""
    if all(saved.published for saved in whole):
        told = f"{origin(whole[-1])} was published: a gate compares items that were run here"
        return [], f"{told}; `touchstone compare` compares totals"
    comparable = [saved for saved in whole if not _differing(new, saved, allowed)]
    others = [saved for saved in whole if saved.checkpoint_key != new.checkpoint_key]
    alone = source.kind == "best" and not any(one in others for one in comparable)
    if not comparable or (alone and others):
        return [], _conditions_reason(new, others or whole, allowed)
    unlike = {id(one): why for one in comparable if (why := other_measure(one, new, metric))}
    if len(unlike) == len(comparable):
        last = comparable[-1]
        again = f"`touchstone score {last.run_id} -o FOLDER` makes it of the stored answers, for --baseline FOLDER"
        return [], f"{origin(last)} {unlike[id(last)]}: {again}"
    return [one for one in comparable if id(one) not in unlike], ""


def refused_before(
    new: StoredResult, examples: Collection[str], source: BaselineSource, allow: Iterable[str]
) -> str:
    """Return why a result that will be asked so, of examples with these ids, cannot be judged against the source.

    Empty where it may be: its prompts, its chat template and items that are skipped are known only when it was asked.
    """
    allowed, metric = set(allow), new.primary
    whole = [saved for saved in _earlier(new, source) if saved.complete and not saved.published]
    on_these_rows = [saved for saved in whole if saved.known["data"] == new.known["data"]]
    if not whole or not (on_these_rows or "data" not in allowed):
        return ""
    # The rows of the new result are those of an earlier one on the same data.
    largest = source.load(max(on_these_rows or whole, key=lambda saved: saved.scored))
    if metric not in largest.saved.metrics:
        return ""
    score, template = score_name(largest.saved, metric), largest.saved.known["template"]
    rows = {name: row for name, row in rows_of(largest.items, score).items() if name in examples}
    if source.kind == "best" and on_these_rows and len(rows) < len(examples):
        return ""
    nothing: list[str | None] = [None] * len(rows)
    items = ItemScores(
        examples=[*rows],
        rows=[*rows.values()],
        groups=nothing,
        clusters=nothing,
        scores={score: [0.0] * len(rows)},
    )
    new = replace(new, metrics=largest.saved.metrics, conditions={**new.conditions, "template": template})
    expected = BenchmarkScores(new, items)
    if source.kind == "best" and ITEMS not in allowed:
        whole, _ = _on_the_same_items(expected, whole, allowed)
    comparable, reason = _asked_alike(new, whole, source, metric, allowed) if whole else ([], "")
    if reason or source.kind == "best" or ITEMS in allowed:
        return reason
    return _same_items(expected, [source.load(saved) for saved in comparable], metric, allowed).reason


def _by_items(results: Iterable[StoredResult]) -> dict[str, list[StoredResult]]:
    found: dict[str, list[StoredResult]] = {}
    for saved in results:
        found.setdefault(saved.items_sha256, []).append(saved)
    return found


def _on_the_same_items(
    new: BenchmarkScores, results: Sequence[StoredResult], allowed: set[str]
) -> tuple[list[StoredResult], list[StoredResult]]:
    """The results to choose from, and those on other items. A result on other rows altogether is among the first,
    unless it is on a part of them: there the rows differ."""
    mine = new.saved.items_sha256 or new.items.digest()

    def apart(saved: StoredResult) -> bool:
        same_rows = not set(ROWS).intersection(_differing(new.saved, saved, allowed))
        return saved.items_sha256 != mine and (_is_part(saved) or same_rows)

    others = [saved for saved in results if apart(saved)]
    return [saved for saved in results if not any(saved is one for one in others)], others


def _is_part(saved: StoredResult) -> bool:
    """Return whether the result is known to be over a part of its rows."""
    return saved.conditions.get("limit") is not None or 0 < saved.collected < saved.of


def _beside(new: BenchmarkScores, others: Sequence[StoredResult], source: BaselineSource) -> BaselineChoice:
    """The note on earlier results on other items, and the state of the new one where there are no others."""
    if not others:
        return BaselineChoice(state="first")
    found = [
        (same[-1], *_overlap(new.items, source.load(same[-1]).items)) for same in _by_items(others).values()
    ]
    lacking = [one for one in found if one[2]]
    saved, shared, missing = max(lacking or found, key=lambda one: (one[2], _age(one[0])))
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
    """The numbers of items that two results share, and that only the other has."""
    rows = dict(zip(other.examples, other.rows, strict=True))
    shared = sum(rows.get(name) == row for name, row in zip(mine.examples, mine.rows, strict=True))
    return shared, len(other.examples) - shared


def comparable(new: StoredResult, results: Iterable[StoredResult]) -> list[StoredResult]:
    """The whole results of earlier runs that were asked alike and of the same items: those that ``best`` chooses
    from."""
    return [
        saved
        for saved in _of_earlier_runs(new, results)
        if saved.complete and saved.items_sha256 == new.items_sha256 and not _differing(new, saved, ())
    ]


def best_per_checkpoint(results: Iterable[StoredResult], metric: str) -> list[StoredResult]:
    """The best result of each checkpoint by the metric, of equal ones the newest; the checkpoint that came last at
    the end. Those without a value are left out where others have one."""
    by_checkpoint: dict[str, StoredResult] = {}
    known = list(results)
    known = [one for one in known if math.isfinite(orient_higher_is_better(one, metric))] or known
    for saved in sorted(known, key=lambda one: (orient_higher_is_better(one, metric), *_age(one))):
        by_checkpoint[saved.checkpoint_key] = saved
    return sorted(by_checkpoint.values(), key=_age)


def orient_higher_is_better(saved: StoredResult, metric: str) -> float:
    """The metric's value, turned so that larger is better."""
    value = saved.metrics[metric].value if metric in saved.metrics else None
    sign = 1 if saved.aggregation(metric).higher_is_better else -1
    return float("-inf") if value is None else sign * value


def _age(saved: StoredResult) -> tuple[float, str, str]:
    return saved.began, saved.run_id, saved.checkpoint


def shown(value: Any, *, unset: str = "default") -> str:
    """A condition's value in words: hashes shortened, and ``unset`` where it was not set."""
    if isinstance(value, str) and len(value) == 64:
        return value[:HASH_SHOWN]
    return unset if value is None else str(value)


def origin(saved: StoredResult) -> str:
    """The name of a result in messages: the checkpoint and its run."""
    return f"{saved.checkpoint} in {saved.run_id}"


def _earlier(new: StoredResult, source: BaselineSource) -> list[StoredResult]:
    """The source's results of the benchmark; of the best, those of earlier runs."""
    if source.kind == "best":
        return _of_earlier_runs(new, source.saved)
    return [saved for saved in source.saved if saved.benchmark == new.benchmark]


def _of_earlier_runs(new: StoredResult, results: Iterable[StoredResult]) -> list[StoredResult]:
    """The results of the benchmark that runs before this one have measured; made-up answers are no baseline for a
    model."""
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


def _nothing(earlier: Sequence[StoredResult], source: BaselineSource) -> BaselineChoice:
    """There is no whole result of the benchmark."""
    if source.kind == "best":
        notes = [f"{origin(saved)} is not used: {incomplete(saved)}" for saved in earlier[-1:]]
        return BaselineChoice(state="first", notes=tuple(notes))
    if not earlier:
        return BaselineChoice(state="absent", reason=f"{source.name} has no result of it")
    reason = f"{origin(earlier[-1])} is not whole: {incomplete(earlier[-1])}"
    return BaselineChoice(state="refused", reason=reason)


def incomplete(saved: StoredResult) -> str:
    """The reason why a result is not whole, in words."""
    parts = [f"{saved.faults} of {saved.collected} items ended in error or were lost"] if saved.faults else []
    parts += [f"{saved.skipped} of {saved.collected} items were skipped"] if saved.skipped else []
    parts += [saved.invalid] if saved.invalid else []
    return "; ".join(parts) or "no item has a score"


def _differing(
    new: StoredResult, other: StoredResult, allowed: Iterable[str]
) -> Mapping[str, tuple[Any, Any]]:
    return differing_conditions(new.known, other.known, allowed)


def _conditions_reason(new: StoredResult, results: Sequence[StoredResult], allowed: set[str]) -> str:
    """The difference of the nearest result and what to do; of equally near ones, the newest."""
    nearest = min(reversed(results), key=lambda saved: len(_differing(new, saved, allowed)))
    fields = _differing(new, nearest, allowed)
    return (
        f"{origin(nearest)} is not comparable: {_told(fields)}; score it again under these conditions, "
        f"or allow it with --eval-baseline-allow {_allowing(fields, allowed)}"
    )


def _told(fields: Mapping[str, tuple[Any, Any]]) -> str:
    """The conditions that differ, as a person tells them: other rows and another number of few-shot examples make
    other examples, which are not told apart from that."""
    implied = {"few_shot"} if fields.keys() & {"shots", "data"} else set()
    told = []
    for name, (mine, other) in fields.items():
        if name in _OTHERS:
            hashes = f" (sha256 {shown(mine)} here, {shown(other)} there)" if isinstance(mine, str) else ""
            told += [] if name in implied else [_OTHERS[name] + hashes]
        else:
            told.append(f"{name} is {shown(mine)} here and {shown(other)} there")
    return ", ".join(told)


_OTHERS: Final = {"data": "its rows are others", "few_shot": "its few-shot examples are others"}
"""Conditions whose values say nothing to a person."""


def _same_items(
    new: BenchmarkScores, entries: Sequence[BenchmarkScores], metric: str, allowed: set[str]
) -> BaselineChoice:
    """The results with the new one's items, or with most of them where items may differ."""
    score = score_name(new.saved, metric)
    found = [(entry, item_differences(new.items, entry.items, score)) for entry in entries]
    if ITEMS in allowed:
        return _most_items(found, metric)
    lacking = [
        (entry, differences) for entry, differences in found if differences.missing or differences.changed
    ]
    same = [entry for entry, differences in found if not differences]
    if lacking or not same:
        entry, differences = max(lacking or found, key=lambda one: len(one[1].missing) + len(one[1].changed))
        return BaselineChoice(state="refused", reason=_items_reason(entry, differences, allowed))
    fewer = len(found) - len(same)
    noun = "result has" if fewer == 1 else "results have"
    notes = (f"{fewer} comparable {noun} fewer items: not used",) if fewer else ()
    return BaselineChoice(state="chosen", baselines=_one_entry_each(same, metric), notes=notes)


def _most_items(found: Sequence[tuple[BenchmarkScores, ItemDifferences]], metric: str) -> BaselineChoice:
    most = max(differences.shared for _, differences in found)
    kept = [(entry, differences) for entry, differences in found if differences.shared == most]
    if not most:
        return BaselineChoice(
            state="refused", reason=f"{origin(found[-1][0].saved)} has no item in common with this run"
        )
    text = next((differences.text() for _, differences in kept if differences), "")
    notes = (f"compared on {most} common items ({text})",) if text else ()
    return BaselineChoice(
        state="chosen", baselines=_one_entry_each([entry for entry, _ in kept], metric), notes=notes
    )


def _one_entry_each(entries: Sequence[BenchmarkScores], metric: str) -> tuple[BenchmarkScores, ...]:
    kept = best_per_checkpoint((entry.saved for entry in entries), metric)
    return tuple(entry for saved in kept for entry in entries if entry.saved is saved)


def _items_reason(entry: BenchmarkScores, differences: ItemDifferences, allowed: set[str]) -> str:
    return (
        f"{origin(entry.saved)} has other items: {differences.text()}; run the same items, "
        f"or compare the common ones with --eval-baseline-allow {_allowing([ITEMS], allowed)}"
    )


def _allowing(names: Iterable[str], allowed: set[str]) -> str:
    """The value for ``--eval-baseline-allow`` that allows these too."""
    return ",".join((*sorted(allowed), *names))
