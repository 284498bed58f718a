"""A series of checkpoints with the next one loaded beside the last items of one, against loading it afterwards.

    python -m perf.load_ahead [--copies 4] [--select arc_easy] [--limit 10] [--threads 1] [--pairs 3]

The checkpoints are copies of a builtin one as folders of bfloat16, each with other numbers. Whole processes of ``pytest
evals/`` run in turn; loading beside is forced where a CPU computes, with as many ``--threads`` as there are cores or
fewer. Printed: their seconds, the ratio, and the peak of memory. That the scores are equal is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.checkpoints import resolve
from harness.engines.transformers.factory import ModelSettings
from harness.engines.transformers.loading import load_model
from perf.measure import OURS, ROOT, Cost, in_turn, mebibytes, ratios
from perf.measure import run as measured

THREADS = "from harness import options; options._cores = lambda _: {}; "
BESIDE = "from harness.engines.transformers.factory import load_ahead; load_ahead.BESIDE = ('cpu',); "
AFTERWARDS = "from harness.engines.transformers.pool import Pool; Pool.load_ahead = lambda *_, **__: False; "
PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


def make(folder: Path, base: str, copies: int) -> None:
    """Writes the copies, as steps of one run."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    (info,) = resolve(base, seq_len=None)
    loaded = load_model(info, ModelSettings(device="cpu", dtype="float32"))
    numbers = torch.Generator().manual_seed(0)
    # A new model of the same shape: one that was read from GGUF does not save itself.
    sizes = {name: value for name, value in loaded.model.config.to_dict().items() if "quant" not in name}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**sizes))
    model.load_state_dict(loaded.model.state_dict())
    model = model.bfloat16()
    for step in range(1, copies + 1):
        with torch.no_grad():
            for part in model.parameters():
                part.mul_(1 + 0.01 * torch.randn(part.shape, generator=numbers).to(part.dtype))
        model.save_pretrained(folder / f"checkpoint-{step}")
        loaded.tokenizer.save_pretrained(folder / f"checkpoint-{step}")


def run(folder: Path, output: Path, code: str, options: argparse.Namespace) -> tuple[Cost, dict[str, Any]]:
    """What one run took, and its scores by checkpoint."""
    code = THREADS.format(options.threads) + code + PYTEST
    command = [sys.executable, "-c", code, "evals/", "-q", "-p", "no:cacheprovider", "--eval-fresh"]
    command += ["--checkpoint", str(folder), "-k", options.select, "--eval-limit", options.limit]
    output.mkdir()
    cost = measured([*command, "--eval-output", output], cwd=ROOT, log=output / "log.txt", env=OURS)
    newest = max(output.glob("*/summary.json"), key=lambda path: path.stat().st_mtime_ns)
    results = json.loads(newest.read_text(encoding="utf-8"))["results"]
    return cost, {f"{one['checkpoint']} {one['benchmark']}": one["metrics"] for one in results}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default="builtin:smollm2-135m")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--select", default="arc_easy", metavar="EXPRESSION", help="as pytest's -k")
    parser.add_argument("--limit", default="10")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads that compute")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        make(folder, options.base, options.copies)
        ahead, after = in_turn(
            options.pairs,
            lambda number: run(folder, Path(name) / f"ahead-{number}", BESIDE, options),
            lambda number: run(folder, Path(name) / f"after-{number}", AFTERWARDS, options),
        )
    if any(scores != after[0][1] for _, scores in (*ahead, *after)):
        raise SystemExit("scores differ")
    for what, costs in (("beside", ahead), ("afterwards", after)):
        seconds = statistics.median(cost.wall for cost, _ in costs)
        peak = max(cost.peak for cost, _ in costs)
        print(f"{what:10}  {seconds:6.1f} s  {mebibytes(peak):6.0f} MiB")
    print(
        f"ratio {ratios([cost.wall for cost, _ in ahead], [cost.wall for cost, _ in after])}; scores are equal"
    )


if __name__ == "__main__":
    main()
