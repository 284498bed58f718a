"""The cost of scoring a model while it trains, beyond the scoring itself, and the speed of its fingerprint.

python -m perf callback [--checkpoint builtin:smollm2-135m] [--steps 6] [--of 300] [--every 100] [--limit 50]

Seconds of CPU, so that other programs on the machine matter little. A few steps and one scoring are measured; from them
follows the share of a training of ``--of`` steps. All that pytest's process does counts as beyond the scoring, and so
does everything in the trainer's process but the answering of requests.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

PYTEST = "pytest's process"


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="builtin:smollm2-135m")
    parser.add_argument("--tasks", default="arc_easy")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a step's batch, in rows of 128")
    for name, default in (("steps", 6), ("of", 300), ("every", 100), ("limit", 50)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    options = parser.parse_args()
    spent = measured(options)
    step, scorings = spent.pop("steps") / options.steps, -(-options.of // options.every)
    answering, start = spent.pop("answering"), spent.pop("start: arguments checked by pytest")
    print(f"a step {step:.2f} s of CPU; a scoring of {options.limit} items {answering:.2f} s, and besides:")
    for name, seconds in spent.items():
        print(f"  {name:40} {seconds:6.2f} s")
    print(f"  once, {'at the start':34} {start:6.2f} s")
    beyond = start + scorings * sum(spent.values())
    whole = options.of * step
    share = f"{beyond / whole:.2%} of {whole:.0f} s"
    print(f"{options.of} steps with {scorings} scorings: {beyond:.1f} s beyond the scoring, {share}")


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of CPU of each part."""
    import torch

    from pytest_touchstone.checkpoints import resolve
    from pytest_touchstone.engines.settings import ModelSettings
    from pytest_touchstone.engines.transformers.live import LiveModel
    from pytest_touchstone.engines.transformers.pool import load_weights
    from pytest_touchstone.plugin.evaluate import check_evaluation, evaluate_with

    (info,) = resolve(options.checkpoint, seq_len=None)
    loaded = load_weights(info, ModelSettings(device="cpu"))
    model, tokenizer = loaded.model.requires_grad_(True), loaded.tokenizer
    spent: dict[str, float] = defaultdict(float)

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            began = time.process_time()
            try:
                return call(*given, **more)
            finally:
                spent[name] += time.process_time() - began

        return wrapped

    def train() -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        rows = torch.randint(0, model.config.vocab_size, (options.tokens // 128, 128))
        for _ in range(options.steps):
            model(rows, labels=rows).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    model.train()
    timed("steps", train)()
    print_speed(model)
    opened = LiveModel.open

    def open_timed(live: LiveModel, *given: Any) -> Any:
        engine = timed("engine: tokenizer and probes", opened)(live, *given)
        engine.answer = timed("answering", engine.answer)
        return engine

    LiveModel.fingerprint = timed("fingerprint", LiveModel.fingerprint)  # type: ignore[method-assign]
    LiveModel.open = open_timed  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory(prefix="callback-") as folder:
        given = {"tasks": options.tasks, "limit": options.limit, "output": folder}
        for name, call in (("start: arguments checked by pytest", check_evaluation), (PYTEST, evaluate_with)):
            began, known, children = time.process_time(), sum(spent.values()), _children()
            with timed("description", LiveModel)(model, tokenizer, str(Path(folder, "checkpoint-1"))) as live:
                call(given, None, live)
            told = sum(spent.values()) - known
            spent["the rest of the trainer's process"] += time.process_time() - began - told
            spent[name] += _children() - children
    spent["description"] /= 2
    return spent


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_speed(model: Any) -> None:
    """Print the speed of hashing a model's numbers beside that of copying them, by the best of three."""
    from concurrent.futures import ThreadPoolExecutor

    from pytest_touchstone.engines.transformers.live import hash_tensor

    tensors = list(model.state_dict().values())
    gigabytes = sum(one.numel() * one.element_size() for one in tensors) / 1e9

    def hashed() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(hash_tensor, tensors))

    for name, call in (("fingerprint", hashed), ("plain copy", lambda: [one.clone() for one in tensors])):
        walls, cpus = [], []
        for _ in range(3):
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        print(
            f"{name}: {gigabytes / min(walls):.2f} GB/s, {gigabytes / min(cpus):.2f} GB for a second of CPU"
        )


if __name__ == "__main__":
    main()
