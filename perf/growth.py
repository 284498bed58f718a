"""The growth of scoring time with few-shot examples, choices or items: a table and the fitted exponent."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perf.measure import growth, spread, table
from perf.our_side import Asked, score
from perf.prompts import PLACES, load_benchmark
from pytest_touchstone.core.dataset import apply_limit, load_dataset, load_shots

SHOTS = (0, 1, 5, 25)
CHOICES = (1, 2, 4, 8, 16)
ITEMS = (0.125, 0.25, 0.5, 1.0)


def show_growth(what: str, asked: Asked, repeats: int, folder: Path) -> dict[str, Any]:
    """Run ours at several sizes and print the seconds of scoring with the fitted growth."""
    if what == "shots":
        runs = [(shots, replace(asked, shots=shots)) for shots in SHOTS]
    elif what == "items":
        most = asked.limit or 200
        counts = sorted({max(1, round(most * part)) for part in ITEMS})
        runs = [(count, replace(asked, limit=count)) for count in counts]
    else:
        runs = [(count, _with_choices(asked, count, folder)) for count in CHOICES]
    seconds: dict[int, list[float]] = {size: [] for size, _ in runs}
    for number in range(repeats):
        for size, one in runs if number % 2 == 0 else reversed(runs):
            seconds[size].append(score(one, folder, f"{what}-{size}-{number}").scoring)
    return _show(what, asked, seconds)


def _show(what: str, asked: Asked, seconds: dict[int, list[float]]) -> dict[str, Any]:
    medians = {size: statistics.median(taken) for size, taken in seconds.items()}
    first = next(iter(medians.values()))
    rows = [
        [size, spread(taken, 3), medians[size] / first if first else 0.0] for size, taken in seconds.items()
    ]
    print(f"\n{asked.benchmark}: scoring seconds by number of {what}\n")
    print(table([what, "seconds", "of the first"], rows))
    slope = growth(list(medians), list(medians.values()))
    print(f"\nfitted growth: seconds ~ {what} ** {slope:.2f} (sizes above 0)", flush=True)
    return {"growth": what, "seconds": seconds, "exponent": slope}


def _with_choices(asked: Asked, count: int, folder: Path) -> Asked:
    """Return the same questions with ``count`` choices each.

    The right one comes first; the others are borrowed from the questions that follow.
    """
    if asked.benchmark not in ("arc_easy", "arc_challenge"):
        raise SystemExit("--growth choices needs --benchmark arc_easy or arc_challenge")
    spec, _ = load_benchmark(PLACES[asked.benchmark])
    dataset, source = load_dataset(spec, asked.data), load_shots(spec, asked.data) if asked.shots else None
    rows = [example.row for example in apply_limit(dataset.examples, None)]
    data = folder / f"choices-{count}"
    _write(data / f"{spec.data.name}.jsonl", [_widened(rows, number, count) for number in range(len(rows))])
    if source is not None and (shots := spec.data.shots) is not None:
        _write(data / f"{shots.name}.jsonl", [example.row for example in source.examples])
    return replace(asked, data=str(data))


def _widened(rows: Sequence[dict[str, Any]], number: int, count: int) -> dict[str, Any]:
    row = rows[number]
    right = [one for one in row["question"]["choices"] if one["label"] == row["answerKey"]]
    texts = [one["text"] for one in right]
    texts += [one["text"] for one in row["question"]["choices"] if one not in right]
    for step in range(1, len(rows)):
        if len(texts) >= count:
            break
        texts += [one["text"] for one in rows[(number + step) % len(rows)]["question"]["choices"]]
    choices = [{"text": text, "label": str(place)} for place, text in enumerate(texts[:count], start=1)]
    return {**row, "question": {**row["question"], "choices": choices}, "answerKey": "1"}


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
