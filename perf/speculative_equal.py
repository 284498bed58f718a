"""Greedy texts with speculative decoding are those of head 0 alone, token for token.

    python -m perf speculative_equal --prompts 200 --tokens 128 --batches 1,7,64

Prompts are prefixes, of different lengths, of the shipped texts of HumanEval, GSM8K and LAMBADA, each once. A third
of them stop at strings that HumanEval's texts stop at, a third at an end of line. Each number of texts at once is run
with proposals at every pass, and again with proposals when they pay. Compared are token ids and why a text ended.
Exit code 1 where any differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

from perf.speculative import add_options, engine
from pytest_touchstone.core.files import shipped
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation.step import SpeculativeStepper
from pytest_touchstone.engines.transformers.token_work import TokenizedPrompt

TEXTS = (
    ("humaneval", "HumanEval.jsonl", "prompt"),
    ("gsm8k", "test.jsonl", "question"),
    ("lambada_openai", "test.jsonl", "text"),
)

STOPS: tuple[tuple[str, ...], ...] = ((), ("\nclass", "\ndef", "\n#", "\nif", "\nprint"), ("\n",))


class Text(NamedTuple):
    """The tokens of a text, its end token among them, and why it ended."""

    tokens: tuple[int, ...]
    reason: str


def main() -> None:
    """Compare, and print the outcome."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, prompts=200, batches="1,7,64")
    options = parser.parse_args()
    asked = requests(options.prompts, options.tokens)
    speculative, alone = (engine(options, how) for how in ("auto", "off"))
    wanted = texts(alone, asked, len(asked))
    reasons = ", ".join(f"{number} {why}" for why, number in Counter(one.reason for one in wanted).items())
    tokens = sum(len(one.tokens) for one in wanted)
    print(
        f"{len(asked)} prompts, {tokens} tokens of head 0 alone, ended by: {reasons}; {options.threads} threads"
    )
    different = 0
    for batch in map(int, options.batches.split(",")):
        for always in (True, False):
            speculative.work_done.reset()
            with patch.object(SpeculativeStepper, "proposes", lambda *_: True) if always else patch.dict({}):
                found = texts(speculative, asked, batch)
            wrong = [
                number for number, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]
            ]
            different += len(wrong)
            accepted = speculative.work_done.accepted
            how = "at every pass" if always else "where it pays"
            print(
                f"{batch:3} at once, proposals {how}: {len(asked) - len(wrong)} of {len(asked)} texts equal; "
                f"{accepted.passes} passes of rows with proposals, {accepted.mean_length:.2f} tokens each"
                + (f"; different: {wrong[:10]}" if wrong else ""),
                flush=True,
            )
    sys.exit(1 if different else 0)


def requests(count: int, tokens: int) -> list[Generate]:
    """Return that many prompts, seeded."""
    numbers, many = random.Random(count), []
    for folder, file, key in TEXTS:
        lines = shipped("data", folder, file).read_text(encoding="utf-8").splitlines()
        many += [json.loads(line)[key] for line in lines]
    if count > len(many):
        raise SystemExit(f"--prompts {count}: there are {len(many)} texts")
    return [
        Generate(text[: numbers.randint(8, 700)], max_new_tokens=tokens, stop=STOPS[number % len(STOPS)])
        for number, text in enumerate(numbers.sample(many, count))
    ]


def texts(engine: CausalEngine, asked: Sequence[Generate], batch: int) -> list[Text]:
    """Return the engine's texts for the prompts, that many of them at once."""
    found: list[Text] = []
    generator: Any = engine._generator()
    for first in range(0, len(asked), batch):
        prompts = [
            one for one in engine._plans(asked[first : first + batch]) if isinstance(one, TokenizedPrompt)
        ]
        made = {}
        for ended in generator.run(prompts):
            (sample,) = ended.samples
            made[ended.number] = Text(tuple(sample.tokens), sample.outcome.finish_reason)
        found += [made[number] for number in range(len(prompts))]
    return found


if __name__ == "__main__":
    main()
