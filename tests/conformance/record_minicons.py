"""Writes the pseudo-log-likelihoods of minicons 0.3.39 into ``fixtures/conformance/pseudo_loglikelihood.jsonl``.

    python tests/conformance/record_minicons.py

Run where ``minicons==0.3.39`` is installed; nothing of this project is needed. Its ``MaskedLMScorer`` scores texts by
the builtin Korean model (PLL_metric "original", Salazar et al. 2020), one text at a time: both texts of the 20 shipped
rows of KoBEST's COPA as ``kobest_copa_masked`` asks them, and texts of other kinds.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "fixtures" / "conformance" / "pseudo_loglikelihood.jsonl"
MODEL = "fixtures/models/ko-mlm-tiny/nouns/checkpoint-1200"
CONNECTORS = {"원인": "왜냐하면", "결과": "그래서"}
OTHERS = (
    "서울",
    "서울은 대한민국의 수도이다.",
    "한 글자, 두 글자; 세 글자!",
    "English words in a Korean model",
    "숫자 1234와 5.67",
    "🙂",
    "  앞뒤에 빈칸  ",
    "줄\n바꿈",
)


def texts():
    lines = (ROOT / "fixtures/data/kobest/copa/test.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        for choice in (row["1"], row["2"]):
            yield f"{row['sentence']} {' ' + CONNECTORS[row['question'].strip()]} {choice}"
    yield from OTHERS


def main():
    from minicons.scorer import MaskedLMScorer

    assert version("minicons") == "0.3.39", f"minicons 0.3.39 is the reference, not {version('minicons')}"
    scorer = MaskedLMScorer(str(ROOT / MODEL), "cpu", PLL_metric="original")
    # Transformers 5 has it under another name alone.
    scorer.tokenizer.batch_encode_plus = scorer.tokenizer.__call__
    rows = []
    for text in texts():
        (found,) = scorer.sequence_score(text, reduction=lambda one: (float(one.sum()), len(one)))
        rows.append({"model": MODEL, "text": text, "logprob": round(found[0], 4), "tokens": found[1]})
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    RECORDED.write_text("".join(lines), encoding="utf-8")
    print(len(rows), "texts")


if __name__ == "__main__":
    main()
