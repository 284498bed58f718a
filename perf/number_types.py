"""Changes by a number type: in choices, log-probabilities and texts, in this process.

    python -m perf number_types --data DIR --benchmarks arc_easy,hellaswag --limit 200
    python -m perf number_types --texts 32 --tokens 64

The first compares scores in ``--dtype`` with those in float32, and with those of other batches (one request per row,
``--other-batch`` rows) in the same type. The second compares greedy texts of the number type, many at once, with
those of transformers' ``generate``, one at a time. Both print CPU time, of ``--threads`` threads.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.generation import GSM8K
from perf.measure import table
from perf.prompts import SEED, Item, items_of, load_benchmark
from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.core.dataset import apply_limit, load_dataset, load_shots
from pytest_touchstone.core.few_shot_sampling import draw_shots
from pytest_touchstone.core.requests import Generate, GenerateAnswer, Loglikelihood, LoglikelihoodAnswer
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.pool import load_fused, load_weights

HALF: tuple[Dtype, ...] = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Found:
    """The answers to all requests of a benchmark's items, and the seconds of CPU time that they took."""

    items: Sequence[Item]
    answers: Sequence[Sequence[LoglikelihoodAnswer]]
    seconds: float

    def choices(self) -> list[object]:
        """Return the best choice of each item; of items with one request, whether it is the greedy one."""
        return [
            one[0].is_greedy if len(one) == 1 else max(range(len(one)), key=lambda n: one[n].logprob)
            for one in self.answers
        ]

    def right(self) -> int:
        """Return the number of items whose choice is the right one."""
        pairs = zip(self.items, self.choices(), strict=True)
        return sum(found is True if item.gold is None else found == item.gold for item, found in pairs)

    def against(self, other: Found) -> dict[str, float]:
        """Return how both differ."""
        pairs = [
            (one.logprob, two.logprob, one.tokens)
            for mine, its in zip(self.answers, other.answers, strict=True)
            for one, two in zip(mine, its, strict=True)
        ]
        apart = [abs(one - two) for one, two, _ in pairs]
        choices = zip(self.choices(), other.choices(), strict=True)
        return {
            "differ": sum(one != two for one, two in choices),
            "largest": max(apart),
            "mean": sum(apart) / len(apart),
            "token": max(off / tokens for off, (_, _, tokens) in zip(apart, pairs, strict=True)),
        }


def main() -> None:
    """Run the comparison that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="builtin:smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=HALF)
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    parser.add_argument("--benchmarks", default="arc_easy,arc_challenge,hellaswag,winogrande,lambada")
    parser.add_argument("--limit", type=int, default=200, help="items of each benchmark")
    parser.add_argument("--other-batch", type=int, default=4, help="rows of the other batches")
    parser.add_argument(
        "--texts", type=int, default=0, help="compare texts after this many prompts of GSM8K instead"
    )
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of a text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    (info,) = resolve(options.checkpoint, seq_len=None)
    found = compare_texts(info, options) if options.texts else compare_scores(info, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def engine(
    info: CheckpointInfo, dtype: Dtype, options: argparse.Namespace, *, plain: bool = False, **how: Any
) -> CausalEngine:
    """Return the engine with weights in that type: as a run has it, or with ``plain`` by transformers' own code."""
    settings = ModelSettings(device="cpu", dtype=dtype, threads=options.threads, batch=how.pop("batch", None))
    load = load_weights if plain else load_fused
    made = CausalEngine(info, load(info, settings), settings, **how)
    for note in made.notes:
        print(note)
    return made


# Scores


def compare_scores(info: CheckpointInfo, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Score the benchmarks in float32, in the number type, and there in other batches."""
    how: dict[str, Any] = {"data": options.data, "limit": options.limit, "shots": None}
    items = {name: items_of(name, **how) for name in options.benchmarks.split(",")}
    ways: list[tuple[Dtype, int | None]] = [
        *(("float32", None), (options.dtype, None)),
        (options.dtype, options.other_batch),
    ]
    found: list[dict[str, Found]] = []
    for dtype, batch in ways:
        asking = engine(info, dtype, options, batch=batch)
        found.append({name: scored(asking, some) for name, some in items.items()})
        asking.close()
    changes, plans, kept = [], [], []
    for name, some in items.items():
        exact, half, other = (one[name] for one in found)
        changed, batches = half.against(exact), other.against(half)
        seconds = f"{exact.seconds:.0f} -> {half.seconds:.0f}"
        changes.append([name, len(some), f"{exact.right()} -> {half.right()}", *_cells(changed), seconds])
        plans.append([name, len(some), f"{half.right()} -> {other.right()}", *_cells(batches)])
        kept.append({"benchmark": name, "items": len(some), "float32": changed, "other batches": batches})
    head = ["items", "right", "choices differ", "largest", "mean", "largest by token"]
    print(f"\n{info.path.name}, differences of log-probabilities")
    print()
    print(table([f"float32 -> {options.dtype}", *head, "CPU s"], changes))
    print()
    print(table([f"other batches of {options.dtype}", *head], plans), flush=True)
    return kept


def _cells(found: Mapping[str, float]) -> list[object]:
    return [found["differ"], *(f"{found[key]:.2g}" for key in ("largest", "mean", "token"))]


def scored(asking: CausalEngine, items: Sequence[Item]) -> Found:
    """Score all requests of some items in one call."""
    requests: list[Loglikelihood] = [request for item in items for request in item.requests]
    began = time.process_time()
    answers = iter(asking.answer(requests))
    seconds = time.process_time() - began
    found = [[next(answers) for _ in item.requests] for item in items]
    return Found(items, found, seconds)  # type: ignore[arg-type]


# Texts


def compare_texts(info: CheckpointInfo, options: argparse.Namespace) -> dict[str, Any]:
    """Generate the same texts at once and one by one; where they part, look at the two best logits."""
    spec, _ = load_benchmark(GSM8K)
    dataset, source = load_dataset(spec, options.data), load_shots(spec, options.data)
    drawn = draw_shots(spec, spec.shots.count, SEED, dataset, source)
    asked = [
        Generate(
            f"{drawn.few_shot(spec, example).text}Question: {example.row['question']}\nAnswer:",
            max_new_tokens=options.tokens,
        )
        for example in apply_limit(dataset.examples, options.texts)
    ]
    exact = engine(info, "float32", options, plain=True)
    many = engine(info, options.dtype, options)
    alone = engine(info, options.dtype, options, plain=True, together=False)
    (_, texts, seconds), (_, plain, plain_seconds) = (written(one, asked) for one in (many, alone))
    margins = [
        parting(exact, alone, ask.prompt, one, two)
        for ask, one, two in zip(asked, texts, plain, strict=True)
        if one != two
    ]
    tokens = [sum(len(encoded(exact, text)) for text in some) for some in (texts, plain)]
    print(f"\n{len(asked)} texts in {options.dtype}: {len(asked) - len(margins)} equal")
    print(f"tokens per second of CPU time: at once {tokens[0] / seconds:.1f}", end="")
    print(f", one at a time {tokens[1] / plain_seconds:.1f}")
    for place, half, whole in sorted(margins):
        print(
            f"  parted at character {place}: best two logits {half:.3g} apart in {options.dtype}, "
            f"{whole:.3g} in float32"
        )
    return {"texts": len(asked), "equal": len(asked) - len(margins), "margins": margins}


def written(asking: CausalEngine, asked: Sequence[Generate]) -> tuple[CausalEngine, list[str], float]:
    """Return the texts, and the seconds of CPU time without those of the probe."""
    asking.answer([Generate("A", max_new_tokens=1)])
    began = time.process_time()
    answers = asking.answer(asked)
    seconds = time.process_time() - began
    return asking, [one.samples[0].text for one in answers if isinstance(one, GenerateAnswer)], seconds


def encoded(asking: CausalEngine, text: str) -> list[int]:
    """Return the text's tokens."""
    return list(asking.loaded.tokenizer(text, add_special_tokens=False)["input_ids"])


def parting(
    exact: CausalEngine, alone: CausalEngine, prompt: str, one: str, two: str
) -> tuple[int, float, float]:
    """Return where two texts part, and how far apart the two best logits are there, in each number type."""
    import torch

    mine, its = encoded(exact, one), encoded(exact, two)
    same = next((at for at, pair in enumerate(zip(mine, its, strict=False)) if pair[0] != pair[1]), 0)
    given = exact.loaded.tokenizer(prompt, return_tensors="pt")["input_ids"]
    ids = torch.cat((given, torch.tensor([mine[:same]], dtype=torch.long)), dim=1)
    apart = []
    for asking in (alone, exact):
        with torch.inference_mode():
            best = asking.loaded.model(input_ids=ids).logits[0, -1].float().topk(2).values
        apart.append(float(best[0] - best[1]))
    place = next((at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
    return place, apart[0], apart[1]


if __name__ == "__main__":
    main()
