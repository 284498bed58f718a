"""Texts by vLLM in process: a script for the Python that has it, started by ``perf.vs_vllm``.

PYTHON perf/vllm_side.py ASKED FOUND

Draws have no seed: on a CPU vLLM 0.32 fails where they have one. So drawn texts differ in length too.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Generate what ``ASKED`` asks for; write seconds, tokens and texts to ``FOUND``."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="2", OMP_NUM_THREADS=str(asked["threads"])
    )
    vllm: Any = importlib.import_module("vllm")
    llm = vllm.LLM(
        asked["model"], dtype=asked["dtype"], max_model_len=2048, enforce_eager=True, disable_log_stats=True
    )
    how = [
        vllm.SamplingParams(
            n=asked["samples"],
            temperature=asked["temperature"],
            max_tokens=asked["tokens"],
            stop=stop,
        )
        for stop in asked["stops"]
    ]
    began = time.perf_counter()
    made = llm.generate(asked["prompts"], how, use_tqdm=False)
    seconds = time.perf_counter() - began
    outputs = [one for each in made for one in each.outputs]
    found = {
        "seconds": seconds,
        "tokens": sum(len(one.token_ids) for one in outputs),
        "texts": [one.text for one in outputs],
    }
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
