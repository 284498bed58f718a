"""Greedy texts with speculative decoding by extra heads, against head 0 alone.

    python -m perf speculative --prompts 32 --tokens 128 --batches 1,4,16,64

Two engines with the same weights continue prompts of HumanEval in turn, in this process: one with the extra heads,
one loaded with ``speculative=off``. Printed for each number of texts at once: seconds per token, their ratio,
mean tokens per pass, and how often each head was right. Then, for texts one at a time, the ratio by the tokens per
pass. That all texts are equal is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from perf.measure import in_turn, ratios, spread, table
from perf.our_side import threads
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.files import shipped
from pytest_touchstone.core.requests import Generate, GenerateAnswer
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation.step import SpeculativeStepper
from pytest_touchstone.engines.transformers.token_work import Acceptance

PIECE = 400
"""The characters of a prompt that is a piece of a file."""

STEP = 0.5
"""The width of a class of texts, in tokens per pass."""


class Timed(NamedTuple):
    """Seconds, tokens, the texts, and what became of proposals."""

    seconds: float
    tokens: int
    texts: list[str]
    accepted: Acceptance

    @property
    def each(self) -> float:
        """Return the milliseconds per token."""
        return 1000 * self.seconds / self.tokens


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, prompts=32, batches="1,4,16,64")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--text", type=Path, metavar="FILE", help="prompts are pieces of this file's text")
    parser.add_argument("--always", action="store_true", help="propose at every pass, not only where it pays")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.always:
        SpeculativeStepper.proposes = lambda *_: True  # type: ignore[method-assign]
    asked = requests(options)
    speculative, alone = (engine(options, how) for how in ("auto", "off"))
    found = {
        "by_batch": by_batch(speculative, alone, asked, options),
        "by_length": by_length(speculative, alone, asked, options.pairs),
    }
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def add_options(parser: argparse.ArgumentParser, *, prompts: int, batches: str) -> None:
    """Add the options of both scripts: the checkpoint and how it is loaded, the number of prompts and tokens."""
    parser.add_argument("--checkpoint", default="builtin:mtp-tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--prompts", type=int, default=prompts)
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of a text")
    parser.add_argument("--batches", default=batches, help="numbers of texts at once")
    parser.add_argument("--threads", type=int, default=threads(), help="CPU threads")


def requests(options: argparse.Namespace) -> list[Generate]:
    """Return the first prompts of HumanEval, or pieces of a file at equal distances."""
    if options.text:
        text = options.text.read_text(encoding="utf-8")
        apart = len(text) // options.prompts
        prompts = [text[number * apart :][:PIECE] for number in range(options.prompts)]
    else:
        lines = shipped("data", "humaneval", "HumanEval.jsonl").read_text(encoding="utf-8").splitlines()
        prompts = [json.loads(line)["prompt"] for line in lines[: options.prompts]]
    return [
        Generate(prompt, max_new_tokens=options.tokens, temperature=options.temperature) for prompt in prompts
    ]


def engine(options: argparse.Namespace, how: Any) -> CausalEngine:
    """Return the checkpoint, with its extra heads or without."""
    (info,) = resolve(options.checkpoint, seq_len=None)
    settings = ModelSettings(
        device=options.device, dtype=options.dtype, threads=options.threads, speculative=how
    )
    made = open_engine(info, settings)
    if not isinstance(made, CausalEngine):
        raise SystemExit(f"{options.checkpoint}: generates no texts")
    return made


def both(
    pairs: int, speculative: CausalEngine, alone: CausalEngine, parts: Sequence[Sequence[Generate]]
) -> tuple[list[Timed], list[Timed]]:
    """Run the same requests with speculative decoding and without, in turn."""
    return in_turn(pairs, lambda _: timed(speculative, parts), lambda _: timed(alone, parts))


def by_batch(
    speculative: CausalEngine, alone: CausalEngine, asked: Sequence[Generate], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run both in turn for each number of texts at once."""
    rows, found = [], []
    for batch in map(int, options.batches.split(",")):
        parts = [asked[first : first + batch] for first in range(0, len(asked), batch)]
        timed(speculative, parts[:1])
        timed(alone, parts[:1])
        mine, theirs = both(options.pairs, speculative, alone, parts)
        if any(one.texts != theirs[0].texts for one in (*mine, *theirs)):
            raise SystemExit(f"batch {batch}: texts with proposals differ from those without")
        counts = mine[0].accepted.counts()
        heads = [right / max(1, of) for right, of in zip(counts["right"], counts["asked"], strict=True)]
        a, b = [one.each for one in mine], [one.each for one in theirs]
        length = mine[0].accepted.mean_length
        row = [
            batch,
            spread(a, 3),
            spread(b, 3),
            ratios(a, b),
            length,
            " ".join(f"{one:.2f}" for one in heads),
        ]
        rows.append(row)
        found.append(
            {"batch": batch, "speculative": a, "alone": b, "mean_length": length, "heads": heads, **counts}
        )
    print(f"{len(asked)} prompts, {options.tokens} tokens, {options.threads} threads; all texts are equal\n")
    header = ["texts at once", "ms/token", "head 0 alone", "ratio", "tokens a pass", "heads right"]
    print(table(header, rows), flush=True)
    return found


def by_length(
    speculative: CausalEngine, alone: CausalEngine, asked: Sequence[Generate], pairs: int
) -> list[dict[str, Any]]:
    """Return the ratio of each text by itself, in classes by its tokens per pass."""
    points = []
    for one in asked:
        mine, theirs = both(pairs, speculative, alone, [[one]])
        middle = [statistics.median(made.each for made in many) for many in (mine, theirs)]
        length = statistics.median(made.accepted.mean_length for made in mine)
        points.append((length, middle[0] / middle[1]))
    points.sort()
    rows, found = [], []
    for number, some in groupby(points, key=lambda point: int(point[0] / STEP)):
        group = [ratio for _, ratio in some]
        rows.append([f"{number * STEP:.1f} to {(number + 1) * STEP:.1f}", len(group), spread(group)])
        found.append({"from": number * STEP, "ratios": group})
    print("\n" + table(["tokens a pass", "texts", "ratio"], rows))
    longer = [ratio for length, ratio in points if length >= 2]
    if longer:
        print(f"\n2 tokens a pass or more: {len(longer)} texts, ratio {statistics.median(longer):.2f}")
    return found


def timed(engine: CausalEngine, parts: Sequence[Sequence[Generate]]) -> Timed:
    """Time the answers to some requests, one request after the other."""
    engine.work_done.reset()
    began = time.perf_counter()
    answers = [answer for part in parts for answer in engine.answer(part)]
    seconds = time.perf_counter() - began
    samples = [one for answer in answers if isinstance(answer, GenerateAnswer) for one in answer.samples]
    accepted = engine.work_done.accepted
    return Timed(seconds, sum(one.tokens for one in samples), [one.text for one in samples], accepted)


if __name__ == "__main__":
    main()
