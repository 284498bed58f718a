"""The harness against lm-evaluation-harness: whole processes on the same rows, examples, model and dtype.

    python -m perf vs_lm_eval --benchmark arc_easy --data DIR --limit 200 --shots 5 \\
        --lm-eval-python PYTHON
    python -m perf vs_lm_eval --benchmark mmlu --subjects college_biology,machine_learning ...
    python -m perf vs_lm_eval --benchmark arc_easy --limit 100 --growth shots

``--growth`` runs this harness alone, at several sizes. Without ``--lm-eval-python`` the Python that runs this
is used for both (``pip install '.[perf]'``).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perf import arithmetic, lm_eval_side, our_side
from perf.growth import show_growth
from perf.lm_eval_side import Answered, Outcome
from perf.measure import in_turn, mebibytes, ratios, spread, table
from perf.prompts import PLACES, Item, items_of

TIE = 1e-4
"""Two choices nearer than this may change places."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that the harnesses score differently, with the distance of the two best choices (None: one choice)."""

    item: str
    metric: str
    ours: float
    theirs: float
    gap: float | None

    @property
    def is_tie(self) -> bool:
        """Return whether rounding explains it."""
        return self.gap is not None and self.gap < TIE


def main() -> None:
    """Compare, or show the growth."""
    options = _options()
    subjects = tuple(options.subjects.split(",")) if options.subjects else ()
    asked = our_side.Asked(
        benchmark=options.benchmark,
        model=our_side.model_folder(options.checkpoint),
        data=None if options.data is None else str(Path(options.data).resolve()),
        limit=options.limit,
        shots=options.shots,
        subjects=subjects,
        dtype=options.dtype,
        device=options.device,
        batch=options.our_batch,
    )
    with tempfile.TemporaryDirectory(prefix="vs-lm-eval-") as name:
        folder = Path(name)
        if options.growth:
            found = show_growth(options.growth, asked, options.pairs, folder)
        else:
            found = compare(asked, options, folder)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--benchmark", choices=list(PLACES), default="arc_easy")
    parser.add_argument("--subjects", metavar="A,B", help="subjects of mmlu")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    parser.add_argument(
        "--checkpoint", default="builtin:smollm2-135m", help="builtin:NAME, GGUF file or folder"
    )
    parser.add_argument("--limit", type=int, help="items (of each subject)")
    parser.add_argument("--shots", type=int, help="few-shot examples (default: the benchmark's own)")
    parser.add_argument("--pairs", type=int, default=3, help="how often both run, in turn")
    parser.add_argument("--batch", default="16", help="lm-eval's --batch_size")
    parser.add_argument("--our-batch", default="auto", help="our --eval-batch")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--mm-rows", type=int, default=512, help="rows of the matrices that torch.mm is timed with"
    )
    parser.add_argument("--growth", choices=["shots", "choices", "items"])
    parser.add_argument("--lm-eval-python", type=Path, default=Path(sys.executable), metavar="PYTHON")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go, too")
    return parser.parse_args()


def compare(asked: our_side.Asked, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run both in turn, print what each took and answered, and return the numbers."""
    items = items_of(
        asked.benchmark, data=asked.data, limit=asked.limit, shots=asked.shots, subjects=asked.subjects
    )
    if not items:
        raise SystemExit("nothing to compare: no such items")
    lm_eval_side.write_task(folder, items)
    threads = our_side.threads()

    def ours(number: int) -> Outcome:
        return our_side.score(asked, folder, f"ours-{number}")

    def theirs(number: int) -> Outcome:
        return lm_eval_side.score(
            folder,
            number,
            python=options.lm_eval_python.absolute(),
            model=asked.model,
            dtype=asked.dtype,
            batch=options.batch,
            device=asked.device,
            threads=threads,
        )

    mine, others = in_turn(options.pairs, ours, theirs)
    requests = [request for item in items for request in item.requests]
    share = arithmetic.measure(
        asked.model,
        requests,
        dtype=asked.dtype,  # type: ignore[arg-type]
        device=asked.device,
        threads=threads,
        rows=options.mm_rows,
    )
    print(
        f"\n{asked.benchmark}, {_shots(asked)}, {len(items)} items, {len(requests)} requests, "
        f"{asked.model.name}, {asked.dtype}, {threads} threads, {options.pairs} pairs, "
        f"batch {options.batch} (lm-eval), {asked.batch} (ours)\n"
    )
    _show_costs(mine, others)
    differences = show_answers(items, mine[0].items, others[0].items)
    show_share(share, mine, others)
    return {
        "benchmark": asked.benchmark,
        "shots": asked.shots,
        "items": len(items),
        "requests": len(requests),
        "dtype": asked.dtype,
        "threads": threads,
        "ours": [_plain(outcome) for outcome in mine],
        "lm_eval": [_plain(outcome) for outcome in others],
        "differences": [asdict(one) for one in differences],
        "largest_logprob_difference": largest(mine[0].items, others[0].items),
        "tokens": asdict(share.tokens),
        "operations": share.operations,
        "mm_operations_a_second": share.mm,
        "shares": [share.of(outcome.scoring) for outcome in mine],
    }


def _shots(asked: our_side.Asked) -> str:
    return "the benchmark's own shots" if asked.shots is None else f"{asked.shots} shots"


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"scoring": outcome.scoring, **asdict(outcome.cost)}


def _show_costs(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> None:
    rows = []
    for name, values in (
        ("scoring, seconds", lambda one: one.scoring),
        ("whole process, seconds", lambda one: one.cost.wall),
        ("CPU, seconds", lambda one: one.cost.cpu),
    ):
        mine, others = [values(one) for one in ours], [values(one) for one in theirs]
        rows.append([name, spread(mine), spread(others), ratios(others, mine), ""])
    mine = [mebibytes(one.cost.peak_tree) for one in ours]
    others = [mebibytes(one.cost.peak_tree) for one in theirs]
    rows.append(["peak memory, MiB", spread(mine, 0), spread(others, 0), "", ratios(mine, others)])
    print(table(["", "ours", "lm-eval", "lm-eval / ours", "ours / lm-eval"], rows))


def show_answers(
    items: Sequence[Item], ours: dict[str, Answered], theirs: dict[str, Answered]
) -> list[Difference]:
    """Print the scores and the differences; return the items that differ."""
    if ours.keys() != theirs.keys() or ours.keys() != {item.id for item in items}:
        raise SystemExit(f"other items were scored: {len(ours)} by ours, {len(theirs)} by lm-eval")
    known = next(iter(ours.values())).metrics
    metrics = [name for name in next(iter(theirs.values())).metrics if name in known]
    rows = [[name, _mean(ours, name), _mean(theirs, name)] for name in metrics]
    print("\n" + table(["score", "ours", "lm-eval"], [[n, f"{a:.4f}", f"{b:.4f}"] for n, a, b in rows]))
    print(f"\nlargest difference of a log-probability: {largest(ours, theirs):.2e}")
    found = [
        Difference(
            item.id, name, ours[item.id].metrics[name], theirs[item.id].metrics[name], _gap(item, name, ours)
        )
        for item in items
        for name in metrics
        if ours[item.id].metrics[name] != theirs[item.id].metrics[name]
    ]
    ties = [one for one in found if one.is_tie]
    print(f"items that differ in a metric: {len(found)}, of them ties within {TIE}: {len(ties)}")
    for one in found:
        gap = "one choice" if one.gap is None else f"the best two are {one.gap:.2e} apart"
        kind = "tie" if one.is_tie else "DIFFERENT"
        print(f"  {kind}: {one.item} {one.metric}: ours {one.ours:g}, lm-eval {one.theirs:g}; {gap}")
    return found


def largest(ours: dict[str, Answered], theirs: dict[str, Answered]) -> float:
    """Return the largest difference of any request's log-probability."""
    return max(
        abs(a - b)
        for name, answered in ours.items()
        for a, b in zip(answered.logprobs, theirs[name].logprobs, strict=True)
    )


def _mean(items: dict[str, Answered], metric: str) -> float:
    return math.fsum(one.metrics[metric] for one in items.values()) / len(items)


def _gap(item: Item, metric: str, ours: dict[str, Answered]) -> float | None:
    """Return the distance of the two best choices, by the metric's own measure."""
    values = list(ours[item.id].logprobs)
    if metric == "acc_norm":
        lengths = [len(request.continuation.removeprefix(" ")) for request in item.requests]
        values = [value / length for value, length in zip(values, lengths, strict=True)]
    best = sorted(values, reverse=True)
    return None if len(best) < 2 else best[0] - best[1]


def show_share(share: arithmetic.Share, ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> None:
    """Print how near both come to the machine's speed."""
    tokens = share.tokens
    print(
        f"\ntokens: {tokens.total} in all requests, {tokens.distinct} distinct "
        f"({tokens.total / tokens.distinct:.2f} to one), logits needed at {tokens.logits}\n"
        f"useful arithmetic: {share.operations / 1e9:.1f} GFLOP ({share.parameters / 1e6:.1f} M parameters "
        f"without embeddings)\ntorch.mm with the model's own shapes: {share.mm / 1e9:.1f} GFLOP/s"
    )
    rows = []
    for name, outcomes in (("ours", ours), ("lm-eval", theirs)):
        taken = [outcome.scoring for outcome in outcomes]
        rows.append(
            [
                name,
                spread([share.operations / seconds / 1e9 for seconds in taken], 1),
                spread([100 * share.of(seconds) for seconds in taken], 1),
                spread([tokens.distinct / seconds for seconds in taken], 0),
            ]
        )
    print("\n" + table(["", "GFLOP/s", "% of torch.mm", "distinct tokens/s"], rows), flush=True)


if __name__ == "__main__":
    main()
