"""Writes what lm-evaluation-harness 0.4.13 makes of reasoning with ``think_end_token`` into ``traces.json``.

    python tests/conformance/record_lm_eval_traces.py

Run where ``lm-eval[math,ifeval]==0.4.13`` is installed; nothing of this project is needed. Of each text of
``traces.py`` there is the beginning of a hash of what is left of it, and the verdict of its task's own filter and
metric.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version

from lm_eval.models.utils import postprocess_generated_text
from record_lm_eval import SCORERS  # type: ignore[import-not-found]  # beside this script
from traces import RECORDED, STOPS, made_traces  # type: ignore[import-not-found]


def main():
    assert version("lm_eval") == "0.4.13", f"lm-eval 0.4.13 is the reference, not {version('lm_eval')}"
    verdicts = {name: SCORERS[name][0](*SCORERS[name][1:]) for name in STOPS}
    found = []
    for one in made_traces():
        text = postprocess_generated_text(one.text, STOPS[one.scorer], one.end)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        found.append([digest, round(float(verdicts[one.scorer](one.gold, text)), 12)])
    lines = ",\n".join(json.dumps(row) for row in found)
    RECORDED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
