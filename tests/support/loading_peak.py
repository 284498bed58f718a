"""The peak memory of loading folders' weights, over the bytes of the loaded weights.

    python -m tests.support.loading_peak CHECKPOINT WARM [CHECKPOINT WARM...]

``WARM`` is a small checkpoint of the same kind, loaded first, so that imported code does not count. Each pair has a
process of its own, forked when a first model was loaded. Prints for each a line of JSON: ``weights`` and ``peak`` in
bytes, the latter over what was resident before. Linux only.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.loading import LoadedModel, load_model
from pytest_touchstone.results.usage import peak_bytes

SETTINGS = ModelSettings(device="cpu", threads=1)


def loaded(source: str) -> LoadedModel:
    """The model, without an engine around it."""
    (info,) = resolve(source, seq_len=None)
    return load_model(info, SETTINGS)


def measure(source: str, warm: str) -> None:
    """Load both, and print what the first took."""
    loaded(warm)
    gc.collect()
    # The peak begins anew; proc_pid_clear_refs(5).
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before = peak_bytes() or 0
    model: Any = loaded(source).model
    after = peak_bytes() or 0
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    print(json.dumps({"weights": weights, "peak": after - before}), flush=True)


def main() -> None:
    """Measures and prints."""
    sources, warm = sys.argv[1::2], sys.argv[2::2]
    loaded(warm[0])
    for pair in zip(sources, warm, strict=True):
        child = os.fork()
        if not child:
            measure(*pair)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{pair} could not be loaded")


if __name__ == "__main__":
    main()
