"""A run's summary and records -> what is saved of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.checkpoints.progress import step_of_row
from harness.conditions import of_settings
from harness.records import Record
from harness.results import Declaration, Summary, wholes
from harness.saved.entry import Items, Saved


def conditions_of(declaration: Declaration, settings: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """What the scores may depend on beside the checkpoint: the benchmark, its data, how it was asked (``chat``: through
    a chat template), and of the manifest's settings those that count."""
    few_shot = {name: value for name, value in declaration.few_shot.items() if name != "num_fewshot"}
    return {
        "version": declaration.version,
        "data": declaration.pack.sha256,
        "shots": int(declaration.few_shot.get("num_fewshot") or 0),
        "few_shot": few_shot,
        "template": "chat" if chat else "plain",
        **of_settings(settings),
    }


def saved_of(
    summary: Summary,
    records: Iterable[Record],
    *,
    codes: Mapping[str, str] | None = None,
) -> list[tuple[Saved, Items]]:
    """An entry for each checkpoint and benchmark of the run. ``codes`` gives the hash of what scored each benchmark.

    A checkpoint without a fingerprint (a manifest of another program) has none here: its entry says "".
    """
    by_place: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status == "scored":
            by_place.setdefault((record.checkpoint, record.benchmark), []).append(record)
    rows = {row["name"]: row for row in summary.checkpoints}
    declared = {declaration.name: declaration for declaration in summary.declarations}
    settings = summary.manifest.get("settings", {})
    found = []
    for result in wholes(summary):
        items = items_of(by_place.get((result.checkpoint, result.benchmark), []))
        row = rows.get(result.checkpoint, {})
        declaration = declared[result.benchmark]
        saved = Saved(
            run_id=summary.run_id,
            directory=summary.directory,
            began=float(summary.manifest.get("began") or 0.0),
            checkpoint=result.checkpoint,
            fingerprint=row.get("fingerprint") or "",
            path=row.get("path") or "",
            step=step_of_row(row),
            benchmark=result.benchmark,
            primary=result.primary,
            conditions=conditions_of(declaration, settings, chat=bool(result.chat)),
            aggregate=declaration.aggregate,
            metrics=result.metrics,
            collected=result.collected,
            scored=result.scored,
            skipped=result.skipped,
            faults=result.faults,
            invalid=result.invalid,
            items_sha256=items.digest(),
            code=(codes or {}).get(result.benchmark),
            reused_from=result.reused_from,
            checkpoint_info=dict(row),
            of=result.of,
            mark=result.mark,
        )
        found.append((saved, items))
    return found


def items_of(records: Iterable[Record]) -> Items:
    """The scores of scored records, in order of the examples' ids."""
    ordered = sorted(records, key=lambda record: record.example)
    names = dict.fromkeys(name for record in ordered for name in record.scores)
    return Items(
        examples=[record.example for record in ordered],
        rows=[record.row for record in ordered],
        groups=[record.group for record in ordered],
        clusters=[record.cluster for record in ordered],
        scores={name: [record.scores.get(name) for record in ordered] for name in names},
    )
