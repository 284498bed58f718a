"""Texts by this harness: the process that ``perf.vs_vllm`` starts.

python -m perf.our_texts ASKED FOUND
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Generate, GenerateAnswer
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings


def main() -> None:
    """Generate what ``ASKED`` asks for; write seconds, tokens and texts to ``FOUND``."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    (info,) = resolve(asked["model"], seq_len=None)
    settings = ModelSettings(dtype=asked["dtype"], device="cpu", threads=asked["threads"], chat="off")
    requests = [
        Generate(
            prompt,
            stop=tuple(stop),
            max_new_tokens=asked["tokens"],
            samples=asked["samples"],
            temperature=asked["temperature"],
            seed=number,
        )
        for number, (prompt, stop) in enumerate(zip(asked["prompts"], asked["stops"], strict=True))
    ]
    engine = open_engine(info, settings)
    began = time.perf_counter()
    answers = engine.answer(requests)
    seconds = time.perf_counter() - began
    engine.close()
    samples = [one for found in answers if isinstance(found, GenerateAnswer) for one in found.samples]
    found = {
        "seconds": seconds,
        "tokens": sum(one.tokens for one in samples),
        "texts": [one.text for one in samples],
    }
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
