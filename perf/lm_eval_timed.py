"""Runs lm-evaluation-harness's own command line and notes how long it spent answering.

    PYTHON lm_eval_timed.py NOTES.json THREADS run --model hf --tasks ...

It imports nothing of this project, which its environment need not have. The seconds are those within
``HFLM.loglikelihood``, ``loglikelihood_rolling`` and ``generate_until``: tokenization, batching and the model, without
loading it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Wrap the answering, then do what ``lm-eval`` does."""
    import torch
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.models.huggingface import HFLM

    notes, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    seconds, requests = 0.0, 0

    def timed(answer: Any) -> Any:
        def answered(self: Any, asked: Any, *more: Any, **options: Any) -> Any:
            nonlocal seconds, requests
            began = time.perf_counter()
            try:
                return answer(self, asked, *more, **options)
            finally:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                seconds += time.perf_counter() - began
                requests += len(asked)

        return answered

    HFLM.loglikelihood = timed(HFLM.loglikelihood)
    HFLM.loglikelihood_rolling = timed(HFLM.loglikelihood_rolling)
    HFLM.generate_until = timed(HFLM.generate_until)
    sys.argv = ["lm-eval", *sys.argv[3:]]
    cli_evaluate()
    notes.write_text(
        json.dumps({"seconds": seconds, "requests": requests, "threads": torch.get_num_threads()})
    )


if __name__ == "__main__":
    main()
