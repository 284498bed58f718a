"""The table of ``perf.sanity``: its runs beside each other, and beside what others have published of the checkpoint.

    python -m perf sanity_table FILE.json [FILE.json ...]

The files are those of ``python -m perf sanity --json``; of a task in several the last counts. Of each benchmark the
table has the items whose prompts, answers and scores are equal on both sides, and the mean of one metric over them.
The tasks of one benchmark, such as the subjects of MMLU, are one line. What differs is listed after the table.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """A task: how many items agree in each respect, and the means of both sides."""

    name: str
    shots: int
    items: int
    prompts: int
    answers: int
    farthest: float
    scores: int
    means: dict[str, tuple[float, float]]
    """The mean of each metric over the items, ours and the reference's."""
    differing: list[str] = field(default_factory=list)
    """The differences, one sentence each."""


USUAL = (
    "acc_norm",
    "acc",
    "exact_match_flexible",
    "exact_match",
    "math_verify",
    "f1",
    "prompt_level_strict_acc",
    "pass@1",
)
"""The metric that is shown, the first of these that both have."""

CARD = "card"
OTHERS = "others"

PUBLISHED: dict[str, tuple[tuple[float, str, str], ...]] = {
    "hellaswag": ((0.409, "acc_norm", CARD), (0.4299, "acc_norm", OTHERS)),
    "arc_easy": ((0.5412, "acc", OTHERS),),
    "arc_challenge": ((0.2773, "acc_norm", OTHERS),),
    "piqa": ((0.663, "acc_norm", CARD), (0.6692, "acc_norm", OTHERS)),
    "gsm8k": ((0.014, "exact_match", CARD), (0.0038, "exact_match_flexible", OTHERS)),
}
"""Published figures of SmolLM2-135M-Instruct on whole sets: by the authors with lighteval, in the checkpoint's card,
and by others with lm-evaluation-harness 0-shot, in the card of lldois/SmolLM2-135M-Reasoning-SLERP-Champion."""

HEADS = (
    *("benchmark", "shots", "items", "prompts", "answers", "scores", "farthest"),
    *("metric", "ours", "lm-eval", "published"),
)


def main() -> None:
    """Print the table of several runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    rows = rows_of(parser.parse_args().files)
    print(markdown(by_benchmark(rows)))
    for row in rows:
        for said in row.differing:
            print(f"{row.name} {said}")


def rows_of(files: Iterable[Path]) -> list[Row]:
    """Return the rows of the files, in their order; of rows with one name the last."""
    found = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8")):
            row["means"] = {name: (own, other) for name, (own, other) in row["means"].items()}
            found[row["name"], row["shots"]] = Row(**row)
    return list(found.values())


def by_benchmark(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with those of one benchmark as one, which says of how many tasks it is."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.name.partition("/")[0], row.shots), []).append(row)
    return [_together(name, several) for (name, _), several in found.items()]


def _together(name: str, rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    items = sum(row.items for row in rows)
    shared = [metric for metric in rows[0].means if all(metric in row.means for row in rows)]
    return Row(
        name=f"{name}, {len(rows)} tasks",
        shots=rows[0].shots,
        items=items,
        prompts=sum(row.prompts for row in rows),
        answers=sum(row.answers for row in rows),
        farthest=max(row.farthest for row in rows),
        scores=sum(row.scores for row in rows),
        means={metric: (_mean(rows, metric, 0), _mean(rows, metric, 1)) for metric in shared},
        differing=[said for row in rows for said in row.differing],
    )


def _mean(rows: Sequence[Row], metric: str, side: int) -> float:
    """Return the mean over all items."""
    return sum(row.means[metric][side] * row.items for row in rows) / sum(row.items for row in rows)


def markdown(rows: Iterable[Row]) -> str:
    """Return the table in Markdown."""
    lines = [HEADS, ("---",) * len(HEADS), *(tuple(_cells(row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> Iterator[str]:
    yield row.name
    yield from (str(one) for one in (row.shots, row.items, row.prompts, row.answers, row.scores))
    if row.farthest == 0:
        yield "texts"
    else:
        yield "different texts" if math.isinf(row.farthest) else f"{row.farthest:.0e}"
    metric = next((name for name in USUAL if name in row.means), next(iter(row.means), ""))
    yield f"`{metric}`" if metric else ""
    yield from (f"{one:.3f}" for one in row.means.get(metric, ()))
    if not metric:
        yield from ("", "")
    yield "; ".join(
        f"{value:.3f}{'' if name == metric else f' `{name}`'} ({source})"
        for value, name, source in PUBLISHED.get(row.name, ())
    )


if __name__ == "__main__":
    main()
