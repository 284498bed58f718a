"""The speed of fingerprints, against reading the same bytes and hashing them.

    python -m perf.fingerprint [--mebibytes 1024] [--shards 1]

Prints the medians of five pairs. They are the rate of ``hashlib.file_digest`` over the files, one after the other,
that of ``fingerprint`` with nothing cached, and their ratio (at least 0.8 is wanted). The files are in the system's
cache for both.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import struct
import tempfile
import time
from pathlib import Path

from pytest_touchstone.checkpoints import CheckpointInfo, fingerprint
from pytest_touchstone.checkpoints.fingerprint import FingerprintCache

PAIRS = 5
SIDE = 2048


def write(folder: Path, mebibytes: int, shards: int) -> list[Path]:
    """Write a folder's weights: float32 tensors of 16 MiB each, over that many files."""
    size = 4 * SIDE * SIDE
    count = max(1, (mebibytes << 20) // size // shards)
    found: list[Path] = []
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        path = folder / f"model-{shard:05}.safetensors"
        names = [f"layers.{shard}.{number}.weight" for number in range(count)]
        header = {
            name: {"dtype": "F32", "shape": [SIDE, SIDE], "data_offsets": [size * at, size * at + size]}
            for at, name in enumerate(names)
        }
        content = json.dumps(header).encode()
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(content)) + content)
            for _ in names:
                file.write(os.urandom(size))
        weight_map |= dict.fromkeys(names, path.name)
        found.append(path)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8"
    )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the speed of fingerprints")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--shards", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(folder, options.mebibytes, options.shards)
        size = sum(path.stat().st_size for path in files)
        info = CheckpointInfo("x", name, folder, "causal", "folder", "llama", "LlamaForCausalLM", 8)
        plain, ours = [], []
        for number in range(PAIRS):
            began = time.perf_counter()
            for path in files:
                with path.open("rb") as file:
                    hashlib.file_digest(file, "sha256")
            plain.append(time.perf_counter() - began)
            began = time.perf_counter()
            fingerprint(info, FingerprintCache(folder / f"known-{number}"))
            ours.append(time.perf_counter() - began)
        ratio = statistics.median(one / other for one, other in zip(plain, ours, strict=True))
        rates = (size / statistics.median(times) / 1e9 for times in (plain, ours))
        print(
            "reading and SHA-256 {:.2f} GB/s, fingerprint {:.2f} GB/s, ".format(*rates) + f"ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
