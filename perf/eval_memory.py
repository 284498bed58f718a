"""The memory that an engine takes beside its weights while it generates, against ``--eval-memory`` (Linux).

    python -m perf eval_memory --data DIR --sizes 192MiB 512MiB 1GiB

Each size has a process of its own. It opens the checkpoint and writes one short text, so that all is there that does
not depend on the size; then it writes all texts. The difference of the two peaks is what the size should bound.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perf.measure import OURS, ROOT, table
from perf.our_side import threads
from perf.prompts import Place, asked_first
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.few_shot import GREEDY
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.machine_memory import bytes_of, shown_size
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.results.usage import peak_bytes


def main() -> None:
    """Measure each size, and print what was taken above the base."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    add("--checkpoint", default="builtin:smollm2-135m")
    add("--limit", type=int, default=64, help="items of GSM8K")
    add("--tokens", type=int, default=128, help="new tokens of a text, at most")
    add("--dtype", default="float32")
    add("--sizes", nargs="+", default=["192MiB", "512MiB", "1GiB"])
    add("--one", metavar="SIZE", help=argparse.SUPPRESS)
    add("--asked", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(json.loads(options.asked.read_text(encoding="utf-8")), options)))
        return
    place = Place("test_gsm8k", "test_gsm8k")
    first = asked_first(place, data=options.data, limit=options.limit, sampling=GREEDY)
    asked = [[one.prompt, list(one.stop)] for one in first.values() if isinstance(one, Generate)]
    with tempfile.TemporaryDirectory(prefix="eval-memory-") as name:
        path = Path(name) / "asked.json"
        path.write_text(json.dumps(asked), encoding="utf-8")
        rows = [_row(size, path) for size in options.sizes]
    print(table(["--eval-memory", "base", "above it", "share of the size", "seconds"], rows))


def _row(size: str, asked: Path) -> list[object]:
    """Return a line of the table, measured by a process of its own with the options that this one was given."""
    command = [sys.executable, "-m", "perf.eval_memory", *sys.argv[1:], "--one", size, "--asked", str(asked)]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **OURS}, capture_output=True, text=True, check=True
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    above, whole = found["peak"] - found["base"], bytes_of(size, None)
    assert whole is not None, "a size in bytes"
    return [size, shown_size(found["base"]), shown_size(above), f"{above / whole:.2f}", found["seconds"]]


def _measured(asked: list[Any], options: argparse.Namespace) -> dict[str, float]:
    """Return the peaks of this process in bytes: with one short text, and with all."""
    (info,) = resolve(options.checkpoint, seq_len=None)
    memory = options.one
    settings = ModelSettings(dtype=options.dtype, device="cpu", threads=threads(), chat="off", memory=memory)
    requests = [Generate(prompt, stop=tuple(stop), max_new_tokens=options.tokens) for prompt, stop in asked]
    engine = open_engine(info, settings)
    engine.answer([Generate("A short text.", max_new_tokens=8)])
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak counts from here
    base = _peak()
    began = time.perf_counter()
    engine.answer(requests)
    found = {"base": base, "peak": _peak(), "seconds": round(time.perf_counter() - began, 1)}
    engine.close()
    return found


def _peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    found = peak_bytes()
    assert found is not None, "Linux says it"
    return found


if __name__ == "__main__":
    main()
