"""The harness as a whole process: ``pytest evals/...`` on a checkpoint, and the contents of its journal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.lm_eval_side import Answered, Outcome
from perf.measure import OURS, ROOT, run
from perf.prompts import PLACES
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.loading import load_model
from pytest_touchstone.results.journal import read_journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a run; None leaves a default alone."""

    benchmark: str
    model: Path
    data: str | None
    limit: int | None
    shots: int | None
    subjects: Sequence[str] = ()
    dtype: str = "float32"
    device: str = "cpu"
    batch: str = "auto"


def score(asked: Asked, folder: Path, name: str) -> Outcome:
    """Run pytest once; the seconds of scoring are those of the journal, item by item.

    They include tokenization, batching and the model, and also the benchmark's own work on prompts and scores, but
    not the loading of the model.
    """
    words = [PLACES[asked.benchmark].nodeid, "--checkpoint", str(asked.model)]
    for option, value in (
        ("data", asked.data),
        ("limit", asked.limit),
        ("shots", asked.shots),
        ("dtype", asked.dtype),
        ("device", asked.device),
        ("batch", asked.batch),
    ):
        words += [] if value is None else [f"--eval-{option}", str(value)]
    if asked.subjects:
        words += ["-k", " or ".join(f"/{subject}/" for subject in asked.subjects)]
    words += [
        "--eval-no-cache",
        "--eval-output",
        str(folder),
        "--eval-run-id",
        name,
        "-p",
        "no:cacheprovider",
    ]
    command = [sys.executable, "-m", "pytest", *words]
    cost = run(command, cwd=ROOT, log=folder / f"{name}.log", env=OURS)
    records = read_journal(folder / name)
    items = {
        record.example: Answered(
            tuple(float(exchange["answer"]["logprob"]) for exchange in record.exchanges), record.scores
        )
        for record in records
    }
    return Outcome(cost, sum(record.seconds for record in records), items)


def model_folder(source: str) -> Path:
    """Return a folder that both harnesses can load: the checkpoint's own, or a GGUF file's, written once to the
    cache."""
    (info, *others) = resolve(source, seq_len=None)
    if others:
        raise SystemExit(f"{source}: several checkpoints; give one")
    if info.format != "gguf":
        return info.path.resolve()
    folder = cache_folder("perf") / f"{info.path.stem}-float32"
    if not (folder / "config.json").is_file():
        loaded = load_model(info, ModelSettings(dtype="float32", device="cpu"))
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        with quiet():
            _plain(loaded.model).save_pretrained(unfinished)
            loaded.tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    return folder


def _plain(model: Any) -> Any:
    """Return the same model without its record of having been quantized, which transformers refuses to save."""
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    fresh = type(model)(type(model.config).from_dict(config))
    fresh.load_state_dict(model.state_dict())
    return fresh


def threads() -> int:
    """Return the CPU threads that a run takes: those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
