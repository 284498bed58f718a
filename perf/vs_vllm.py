"""Generated texts against vLLM in process: the same prompts, stops and limits, whole batches, its prefix cache cold.

    python -m perf vs_vllm gsm8k --data DIR --limit 64 --tokens 128 --dtype float32 --vllm-python PYTHON
    python -m perf vs_vllm humaneval --data DIR --limit 8 --samples 20 --tokens 256 --vllm-python PYTHON

Each run is a process of its own, in turn. The seconds are those between the first request and the last text, without
the loading of the model. Texts end where the model ends them, so tokens are counted too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perf.measure import OURS, ROOT, in_turn, ratios, spread, table
from perf.our_side import model_folder, threads
from perf.prompts import Place, asked_first
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.requests import Generate

_PLACES = {
    "gsm8k": Place("test_gsm8k", "test_gsm8k"),
    "humaneval": Place("test_humaneval", "test_humaneval"),
}


def main() -> None:
    """Run both in turn and print seconds, tokens and equal texts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("benchmark", choices=_PLACES)
    add("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    add("--checkpoint", default="builtin:smollm2-135m")
    add("--limit", type=int, default=64, help="items")
    add("--samples", type=int, default=1, help="samples of each prompt; more than one at temperature 0.8")
    add("--tokens", type=int, default=128, help="new tokens of a text, at most")
    add("--dtype", default="float32")
    add("--pairs", type=int, default=3)
    add("--vllm-python", type=Path, default=Path(sys.executable), metavar="PYTHON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vs-vllm-") as name:
        _compare(Path(name), options)


def _compare(folder: Path, options: argparse.Namespace) -> None:
    asked = folder / "asked.json"
    asked.write_text(json.dumps(_asked(options)), encoding="utf-8")

    def ours(number: int) -> dict[str, Any]:
        return _found([sys.executable, "-m", "perf.our_texts", asked], folder / f"ours-{number}", OURS)

    def theirs(number: int) -> dict[str, Any]:
        command = [options.vllm_python.absolute(), ROOT / "perf" / "vllm_side.py", asked]
        return _found(command, folder / f"vllm-{number}", {"PYTHONPATH": ""})

    mine, others = in_turn(options.pairs, ours, theirs)
    rows: list[list[object]] = []
    for name in ("seconds", "tokens"):
        a, b = [float(one[name]) for one in mine], [float(one[name]) for one in others]
        rows.append([name, spread(a), spread(b), ratios(b, a)])
    a, b = ([one["tokens"] / one["seconds"] for one in side] for side in (mine, others))
    rows.append(["tokens per second", spread(a), spread(b), ratios(b, a)])
    print(
        f"\n{options.benchmark}, {options.limit} items, {options.samples} samples, up to {options.tokens} tokens, "
        f"{options.dtype}, {threads()} threads\n"
    )
    print(table(["", "ours", "vLLM", "vLLM / ours"], rows))
    texts = list(zip(mine[0]["texts"], others[0]["texts"], strict=True))
    print(f"\nequal texts: {sum(one == other for one, other in texts)} of {len(texts)}")


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return what both sides are to do, as JSON."""
    sampling = Sampling(samples=options.samples, temperature=0.8) if options.samples > 1 else Sampling()
    first = asked_first(_PLACES[options.benchmark], data=options.data, limit=options.limit, sampling=sampling)
    requests = [one for one in first.values() if isinstance(one, Generate)]
    assert len(requests) == len(first), "an item asks for something else"
    return {
        "model": str(model_folder(options.checkpoint)),
        "dtype": options.dtype,
        "threads": threads(),
        "tokens": options.tokens,
        "samples": options.samples,
        "temperature": requests[0].temperature,
        "prompts": [one.prompt for one in requests],
        "stops": [list(one.stop) for one in requests],
    }


def _found(command: list[str | Path], path: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run one side; return its seconds, tokens and texts.

    Nothing watches its memory meanwhile: that takes a share of the cores, and most from whoever has many pages.
    """
    made, log = path.with_suffix(".json"), path.with_suffix(".log")
    with log.open("wb") as file:
        ended = subprocess.run(
            [*command, made], cwd=ROOT, env={**os.environ, **env}, stdout=file, stderr=file, check=False
        )
    if ended.returncode:
        raise SystemExit(
            f"{log.read_text(errors='replace')[-3000:]}\nended with exit code {ended.returncode}"
        )
    found: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    print(f"{path.name}: {found['seconds']:.2f} s, {found['tokens']} tokens", flush=True)
    return found


if __name__ == "__main__":
    main()
