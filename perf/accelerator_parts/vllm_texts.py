"""Texts by vLLM: the process that ``perf.accelerator_parts.generate_peers`` starts.

    PYTHON -m perf.accelerator_parts.vllm_texts FOLDER

It imports nothing of this project but the module that makes the model. Weights up to 1 GB are the same as ours; they
are written to the folder. Others are vLLM's own random ones.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from perf.accelerator_parts.random_model import made

WRITTEN = 10**9
"""The bytes of weights up to which they are written to disk."""

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def main() -> None:
    """Write what ``asked.json`` asks for."""
    folder = Path(sys.argv[1])
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    how = _written(folder, asked)

    vllm: Any = importlib.import_module("vllm")  # of the Python that runs this

    llm = vllm.LLM(
        model=str(folder),
        dtype=asked["how"]["dtype"],
        max_model_len=asked["length"],
        load_format=how,
        disable_log_stats=True,
        seed=0,
    )
    found: dict[str, Any] = {}
    for case in asked["cases"]:

        def written(
            tokens: int, mark: list[int], case: dict[str, Any] = case
        ) -> tuple[float, list[list[int]]]:
            how = vllm.SamplingParams(
                n=case["samples"],
                temperature=case["temperature"],
                top_p=case["top_p"],
                max_tokens=tokens,
                ignore_eos=True,
                detokenize=True,
            )
            prompts = [{"prompt_token_ids": [*mark, *ids]} for ids in case["prompts"]]
            began = time.perf_counter()
            made = llm.generate(prompts, how, use_tqdm=False)
            seconds = time.perf_counter() - began
            return seconds, [list(one.token_ids) for each in made for one in each.outputs]

        # A token before all others, so that no prompt is known from the call before.
        written(asked["short"], [3])
        short, _ = written(asked["short"], [4])
        long, texts = written(case["tokens"], [])
        found[case["name"]] = [short, long, case["tokens"] - asked["short"], texts]
    found["same weights"] = how == "auto"
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


def _written(folder: Path, asked: dict[str, Any]) -> str:
    """Write the model or its config; return how vLLM is to load it."""
    from transformers import AutoConfig

    kind, model_type, config = asked["model"]
    settings = AutoConfig.for_model(model_type, **config)
    settings.architectures = [ARCHITECTURES[model_type]]
    settings.torch_dtype = asked["how"]["dtype"]
    width, layers = settings.hidden_size, settings.num_hidden_layers
    numbers = settings.vocab_size * width * 2 + layers * width * (4 * width + 3 * settings.intermediate_size)
    if 2 * numbers > WRITTEN:
        settings.save_pretrained(folder)
        return "dummy"
    made(kind, model_type, config, **asked["how"], known=asked["known"]).save_pretrained(folder)
    return "auto"


if __name__ == "__main__":
    main()
