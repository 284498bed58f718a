"""Loading: the first answer of a process, the next checkpoint of a series, adapters in turn, and memory at its peak.

Here alone models are files: safetensors written to a temporary folder, without any checkpoint's meaning. The first
answer is that of a process of its own, from its start on.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget
from perf.accelerator_parts.findings import Row
from perf.accelerator_parts.models import Setup, tokenizer_of
from perf.accelerator_parts.other_process import run_side
from perf.accelerator_parts.random_model import made
from perf.accelerator_parts.shapes import Shape, sizes
from perf.accelerator_parts.timing import begin_peak, peak_mebibytes, timed
from perf.measure import mebibytes
from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.core.requests import FillMask, Generate, Loglikelihood, Refusal, Request
from pytest_touchstone.engines.registry import EnginePool
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.compat import quiet

PART = "load"

SERIES = 3
"""The checkpoints of a series."""

RANK = 16

ADAPTED = ("q_proj", "v_proj")

SWITCHES = 10
"""Times that base and adapters take turns."""


def measure(setup: Setup, budget: Budget) -> Iterator[Row]:
    """Yield the rows of all models, the small ones first."""
    models = sorted((one for one in setup.models if one.kind != "mtp"), key=lambda one: sizes(one).whole)
    for number, shape in enumerate(models):
        share = budget.split(len(models) - number)
        size = sizes(shape).whole * setup.itemsize
        needed, free = 2.2 * size, shutil.disk_usage(tempfile.gettempdir()).free
        if not share.enough(5.0 + size / 3e8):  # written, hashed and read several times
            yield Row(PART, shape.name, "all", note="left out: no time")
        elif needed > 0.8 * free:
            note = f"left out: {mebibytes(needed):,.0f} MiB on disk, {mebibytes(free):,.0f} free"
            yield Row(PART, shape.name, "all", note=note)
        else:
            with tempfile.TemporaryDirectory(prefix="accelerator-") as name:
                work = partial(_model, shape, setup, Path(name), share)
                yield from attempt(work, part=PART, model=shape.name, device=setup.device)


def _model(shape: Shape, setup: Setup, folder: Path, budget: Budget) -> list[Row]:
    first, second = (folder / f"checkpoint-{number}" for number in (100, 200))
    _write(shape, setup, first, seed=0)
    _write(shape, setup, second, seed=1)
    rows = [_series(shape, setup, [first, second])]
    shutil.rmtree(second)
    if shape.kind == "causal":
        rows.append(_adapters(shape, setup, first, folder))
    for case in ("first answer, first time", "first answer"):
        if budget.enough(3.0):
            rows.append(_first_answer(shape, setup, first, case, budget))
        else:
            rows.append(Row(PART, shape.name, case, note="left out: no time"))
    return rows


def _write(shape: Shape, setup: Setup, folder: Path, seed: int) -> None:
    """Write a checkpoint with other weights for each seed."""
    tokenizer = tokenizer_of(shape.kind, setup.tokenizer)
    known = int(max(tokenizer.get_vocab().values())) + 1
    how: dict[str, Any] = {"dtype": setup.dtype, "device": setup.device, "known": known, "seed": seed}
    with quiet():
        model = made(shape.kind, shape.model_type, dict(shape.config), **how)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def question(kind: str, number: int = 0) -> Request:
    """Return a request with the least work."""
    if kind == "masked":
        return FillMask("[MASK]", top_k=5)
    return Loglikelihood(f"Question: {number}\nAnswer:", " yes")


# A process of its own


def _first_answer(shape: Shape, setup: Setup, checkpoint: Path, case: str, budget: Budget) -> Row:
    folder = checkpoint.parent
    asked = {
        "checkpoint": str(checkpoint),
        "kind": shape.kind,
        "settings": {"device": setup.device, "dtype": setup.dtype, "chat": "off", **setup.settings},
        "began": time.time(),
    }
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    found = run_side(
        "perf.accelerator_parts.load",
        *(Path(sys.executable), folder, max(60.0, budget.left)),
        {"TOUCHSTONE_CACHE": str(folder / "cache")},  # nothing of this model is known from earlier runs
    )
    if isinstance(found, str):
        return Row(PART, shape.name, case, note=found)
    size = sizes(shape).whole * setup.itemsize
    return Row(
        PART, shape.name, case, figures={**found, "peak / weights": found["peak MiB"] / mebibytes(size)}
    )


def answer_first(folder: Path) -> None:
    """Open the checkpoint that ``asked.json`` names and answer one request of each kind; write the seconds."""
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    settings, began = ModelSettings(**asked["settings"]), asked["began"]
    import torch
    import transformers

    del torch, transformers
    imported = time.time()
    pool, (info,) = EnginePool(settings), resolve(asked["checkpoint"], seq_len=None)
    engine = pool.engine(info)
    opened = time.time()
    _ask(engine, question(asked["kind"]))
    found = {"imports, s": imported - began, "opened, s": opened - began, "answered, s": time.time() - began}
    if asked["kind"] != "masked":
        _ask(engine, Generate("Answer:", max_new_tokens=2))
        found["first text, s"] = time.time() - began
    found["peak MiB"] = peak_mebibytes(asked["settings"]["device"])
    pool.close()
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


def _ask(engine: Any, request: Request) -> None:
    (answer,) = engine.answer([request])
    assert not isinstance(answer, Refusal), answer


# Checkpoints in turn


def _settings(setup: Setup) -> ModelSettings:
    more: dict[str, Any] = {"device": setup.device, "dtype": setup.dtype, "chat": "off", **setup.settings}
    return ModelSettings(**more)


def _info(path: Path, base: Path | None = None) -> CheckpointInfo:
    (info,) = resolve(str(path), seq_len=None, base_model=None if base is None else str(base))
    return info


def _series(shape: Shape, setup: Setup, checkpoints: list[Path]) -> Row:
    """Open one checkpoint after the other, in the same process, as a run over a series does."""
    begin_peak(setup.device)
    pool = EnginePool(_settings(setup))
    seconds, peaks = [], []
    order = [checkpoints[number % len(checkpoints)] for number in range(SERIES)]
    for path in order:
        info = _info(path)

        def turn(info: CheckpointInfo = info) -> None:
            _ask(pool.engine(info), question(shape.kind))

        seconds.append(timed(setup.device, turn)[0])
        peaks.append(peak_mebibytes(setup.device))
    pool.close()
    size = mebibytes(sizes(shape).whole * setup.itemsize)
    figures: dict[str, Any] = {
        "answered, s": seconds[-1],
        "peak MiB": peaks[-1],
        "peak / weights": peaks[-1] / size,
    }
    if setup.device.startswith("cuda"):
        figures["loaded"] = (
            "beside the one before" if peaks[-1] > peaks[0] + 0.5 * size else "after the one before"
        )
    return Row(PART, shape.name, "next of a series", figures=figures)


def _adapters(shape: Shape, setup: Setup, base: Path, folder: Path) -> Row:
    """Open the base and two adapters, then ask them in turn; a switch is what a turn takes beyond the base's own."""
    paths = [_adapter(base, folder / f"adapter-{number}", number) for number in (1, 2)]
    begin_peak(setup.device)
    pool = EnginePool(_settings(setup))

    def first(info: CheckpointInfo) -> None:
        _ask(pool.engine(info), question("causal"))

    infos = [_info(base), *(_info(path, base) for path in paths)]
    opened = [timed(setup.device, partial(first, info))[0] for info in infos]
    turns = [infos[number % len(infos)] for number in range(SWITCHES * len(infos))]

    def answers(order: list[CheckpointInfo], start: int) -> None:
        for number, info in enumerate(order, start):
            _ask(pool.engine(info), question("causal", number))

    answers(turns, 2000)  # warms up
    same, _ = timed(setup.device, lambda: answers([infos[0]] * len(turns), 0))
    other, _ = timed(setup.device, lambda: answers(turns, 1000))
    size = mebibytes(sizes(shape).whole * setup.itemsize)
    peak = peak_mebibytes(setup.device)
    pool.close()
    figures: dict[str, Any] = {
        "answered, s": opened[1],
        "switch, ms": 1e3 * (other - same) / len(turns),
        "peak MiB": peak,
        "peak / weights": peak / size,
    }
    return Row(PART, shape.name, f"adapter of rank {RANK} added, then switched", figures=figures)


def _adapter(base: Path, folder: Path, seed: int) -> Path:
    """Write a LoRA adapter with random weights as PEFT saves one."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or width // heads
    outs = {"q_proj": heads * head, "v_proj": config["num_key_value_heads"] * head}
    numbers = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name in ADAPTED:
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = 0.02 * torch.randn(RANK, width, generator=numbers)
            tensors[f"{prefix}.lora_B.weight"] = 0.02 * torch.randn(outs[name], RANK, generator=numbers)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": list(ADAPTED)}
    settings |= {"base_model_name_or_path": str(base), "task_type": "CAUSAL_LM", "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


if __name__ == "__main__":
    answer_first(Path(sys.argv[1]))
