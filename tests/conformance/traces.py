"""Made texts of models that reason, for the test and for the script that records what lm-evaluation-harness makes of
them; nothing of this project is needed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "fixtures" / "conformance"
RECORDED = FOLDER / "traces.json"

STOPS = {
    "gsm8k_strict": ["Question:", "</s>", "<|im_end|>"],
    "gsm8k_flexible": ["Question:", "</s>", "<|im_end|>"],
    "hendrycks_exact": ["Problem:"],
    "mmlu_pro_letter": ["Question:"],
    "bbh_exact": ["</s>", "Q", "\n\n"],
    "drop_f1": ["."],
}
"""The scorers of ``test_verdicts``, and the stop sequences of their tasks."""

DELIMITERS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<seed:think>", "</seed:think>"),
    ("", "<<over>>"),
)

_TRACES = (
    "1 + 1",
    "\n",
    "",
    "Question: is it #### 7? Q: no.\n\nProblem: \\boxed{8}. The answer is (B).</s>",
    "서울은 어디인가? 🤔 ……  \u2028 \u00a0",
    "def f():\n    return 1\n\n```python\nassert False\n```",
    "the answer is (C). #### 12 <|im_end|>",
)

_GAPS = ("", "\n\n", "\n", " ", " \n\t\n", "\r\n\r\n", "\u00a0\n", "\u3000\n\n", "\t", "    ", "\n    ")


class Traced(NamedTuple):
    """A model's ``text``, the ``end`` that is named to the harness, the scorer of the task and its gold answer.

    ``open``: the text begins a reasoning that does not end."""

    text: str
    begin: str
    end: str
    scorer: str
    gold: Any
    open: bool


def made_traces(count: int = 500) -> Iterator[Traced]:
    """Yield texts of all kinds, always the same."""
    drawn = random.Random(51)
    cases = {name: _cases(name) for name in STOPS}
    for _ in range(count):
        scorer = drawn.choice(list(STOPS))
        case = drawn.choice(cases[scorer])
        begin, end = drawn.choice(DELIMITERS)
        before, trace, gap = drawn.choice(("", "", " ", "\n")), drawn.choice(_TRACES), drawn.choice(_GAPS)
        answer = drawn.choice((case["output"], case["output"], case["output"], "", "\n "))
        shape = drawn.choice(("whole", "whole", "by the template", "several", "nested", "none", "open"))
        text = {
            "whole": f"{before}{begin}{trace}{end}{gap}{answer}",
            "by the template": f"{trace}{end}{gap}{answer}",
            "several": f"{begin}{trace}{end}{gap}{case['output']}{end}{gap}{answer}",
            "nested": f"{begin}{trace}{begin} again {end} so{end}{gap}{answer}",
            "none": case["output"],
            "open": f"{begin}{trace}{gap}{case['output']}",
        }[shape]
        yield Traced(text, begin, end, scorer, case["gold"], shape == "open" and bool(begin))


def _cases(scorer: str) -> list[dict[str, Any]]:
    text = (FOLDER / "verdicts" / f"{scorer}.jsonl").read_text(encoding="utf-8")
    cases = [json.loads(line) for line in text.splitlines()]
    return [case for case in cases if isinstance(case["output"], str)]
