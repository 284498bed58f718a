"""Writes the verdicts of EvalPlus 0.3.1 into ``verdicts/plus_rules.jsonl``.

    python tests/conformance/record_evalplus.py [--check]

Run where ``evalplus==0.3.1`` is installed; nothing of this project is needed. EvalPlus's own ``untrusted_check`` judges
a program that returns the ``output`` of each input, against the ``expected`` ones. Inputs, outputs and expected values
are written as Python has them, since JSON has neither tuples nor sets. ``--check`` only says which verdicts differ from
those on record. What ``differences.jsonl`` says of the reference is always checked, and never written.
"""

from __future__ import annotations

import math
from importlib.metadata import version

from evalplus.eval import PASS, untrusted_check
from recording import record  # type: ignore[import-not-found]  # beside this script

NAMES = {"nan": math.nan, "inf": math.inf}
SECONDS = 5.0

PROGRAM = """
nan, inf = float("nan"), float("inf")
_outputs = iter([{outputs}])

def {name}(*_):
    return next(_outputs)
"""


def values(texts):
    return [eval(text, dict(NAMES)) for text in texts]


def verdict(gold, output):
    name, inputs = gold["entry_point"], values(gold["inputs"])
    status, _ = untrusted_check(
        "humaneval" if name == "find_zero" else "mbpp",
        PROGRAM.format(outputs=", ".join(output), name=name),
        inputs,
        name,
        expected=values(gold["expected"]),
        atol=gold["atol"],
        ref_time=[SECONDS] * len(inputs),
        fast_check=True,
    )
    return status == PASS


def main():
    assert version("evalplus") == "0.3.1", f"evalplus 0.3.1 is the reference, not {version('evalplus')}"
    record({"plus_rules": verdict})


if __name__ == "__main__":
    main()
