"""The most memory that a ``.pt`` file with its optimizer's state takes while it is recognised and loaded.

    python -m perf mtp_memory --weights 200 --optimizer 400

Writes a multi-token-prediction checkpoint of random weights, as training scripts save it, with that many MiB of
float32 weights and of optimizer state. Loads it in a process of its own, fingerprint included. Printed: what that
process had resident, at most and in the end, beyond what it had before; mapped pages of the file count. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perf.measure import OURS, ROOT

MIB = 2**20

PARAMS: dict[str, Any] = {
    "dim": 512,
    "n_heads": 8,
    "n_kv_heads": 4,
    "vocab_size": 400,
    "multiple_of": 64,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_seq_len": 256,
    "n_future_tokens": 4,
}


def main() -> None:
    """Write a file, have it loaded and print the memory that took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=int, default=200, metavar="MIB")
    parser.add_argument("--optimizer", type=int, default=400, metavar="MIB")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--load", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print(json.dumps(loaded(options.load)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), options.weights * MIB, options.optimizer * MIB)
    weights = found["weights"]
    print(f"weights {weights / MIB:.0f} MiB, whole file {found['file'] / MIB:.0f} MiB")
    for name in ("peak", "after"):
        print(f"{name:6} {found[name] / MIB:.0f} MiB, {found[name] / weights:.2f} of the weights")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measured(folder: Path, weights: int, optimizer: int) -> dict[str, int]:
    """Return bytes: ``weights`` of the model, ``file``, and resident ones beyond what was there before, at most
    (``peak``) and in the end (``after``)."""
    path, size = written(folder, weights, optimizer)
    command = [sys.executable, "-m", "perf.mtp_memory", "--load", str(path)]
    environment = {**OURS, "HOME": str(folder), "TOUCHSTONE_CACHE": str(folder)}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    size_of_file = path.stat().st_size
    path.unlink()
    if process.returncode:
        raise SystemExit(process.stderr)
    return {"weights": size, "file": size_of_file, **json.loads(process.stdout)}


def written(folder: Path, weights: int, optimizer: int) -> tuple[Path, int]:
    """Write a checkpoint with at least that many bytes of weights; return how many they are."""
    import torch

    from pytest_touchstone.engines.transformers.mtp.model import config_of
    from tests.support.tiny_mtp import random_state, save_mtp

    for layers in range(PARAMS["n_future_tokens"], 1000):
        params = {**PARAMS, "n_layers": layers}
        shapes = config_of(params, "test").shapes(params["vocab_size"]).values()
        size = 4 * sum(torch.Size(shape).numel() for shape in shapes)
        if size >= weights:
            break
    half = torch.ones(optimizer // 8)
    state = {"state": {0: {"exp_avg": half, "exp_avg_sq": half.clone()}}}
    path = save_mtp(folder, random_state(**params), config={"model": params}, optimizer_state_dict=state)
    return path, size


def loaded(path: Path) -> dict[str, int]:
    """Return the resident bytes at most and in the end, beyond those before; the model is still there in the end."""
    from pytest_touchstone.checkpoints import resolve
    from pytest_touchstone.checkpoints.fingerprint import fingerprint
    from tests.support.tiny_mtp import mtp_engine, random_state, save_mtp

    small = save_mtp(path.parent / "small", random_state())
    (info,) = resolve(str(small), seq_len=None)
    fingerprint(info)
    mtp_engine(info)  # memory that loading anything takes is counted already
    Path("/proc/self/clear_refs").write_text(
        "5", encoding="ascii"
    )  # the peak begins anew (proc_pid_clear_refs(5))
    before = _resident("VmRSS")
    (info,) = resolve(str(path), seq_len=None)
    fingerprint(info)
    engine = mtp_engine(info)
    found = {"peak": _resident("VmHWM") - before, "after": _resident("VmRSS") - before}
    engine.close()
    return found


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    main()
