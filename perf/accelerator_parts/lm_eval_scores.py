"""Scores with lm-evaluation-harness's ``HFLM``: the process of ``perf.accelerator_parts.lm_eval_peer``.

    PYTHON -m perf.accelerator_parts.lm_eval_scores FOLDER

It imports nothing of this project but the module that makes the model. The seconds are those within
``HFLM.loglikelihood``: tokenization, batching and the model. As many requests are timed as fit into the time, going by
a first batch that is asked twice.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from perf.accelerator_parts.random_model import made


def main() -> None:
    """Answer what ``asked.json`` asks for."""
    import torch
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoTokenizer

    folder = Path(sys.argv[1])
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    model = made(*asked["model"], **asked["how"], known=asked["known"])
    tokenizer = AutoTokenizer.from_pretrained(asked["tokenizer"], local_files_only=True)
    lm = HFLM(
        pretrained=model,
        tokenizer=tokenizer,
        batch_size=asked["batch"],
        max_length=asked["length"],
        device=asked["how"]["device"],
    )

    def scored(pairs: list[list[str]]) -> tuple[float, list[float]]:
        requests = [
            Instance(request_type="loglikelihood", doc={}, arguments=(one, two), idx=number)
            for number, (one, two) in enumerate(pairs)
        ]
        began = time.perf_counter()
        answers: Any = lm.loglikelihood(requests, disable_tqdm=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - began, [float(one) for one, _ in answers]

    found = {}
    for case, pairs in asked["asked"].items():
        first = pairs[: asked["batch"]]
        scored(first)
        each = scored(first)[0] / len(first)
        many = max(len(first), min(len(pairs), int(asked["seconds"] / each)))
        found[case] = scored(pairs[:many])
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
