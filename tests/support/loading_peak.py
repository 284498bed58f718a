"""The peak memory of loading a folder's weights, over the bytes of the loaded weights.

    python -m tests.support.loading_peak CHECKPOINT WARM

``WARM`` is a small checkpoint of the same kind, loaded first, so that imported code does not count. Prints a line of
JSON: ``weights`` and ``peak`` in bytes, the latter over what was resident before. Linux only.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

from harness.checkpoints import resolve
from harness.engines.settings import ModelSettings
from harness.engines.transformers.loading import Loaded, load_model
from harness.results.usage import peak_bytes

SETTINGS = ModelSettings(device="cpu", threads=1)


def loaded(source: str) -> Loaded:
    """The model, without an engine around it."""
    (info,) = resolve(source, seq_len=None)
    return load_model(info, SETTINGS)


def main() -> None:
    """Measures and prints."""
    source, warm = sys.argv[1:]
    loaded(warm)
    gc.collect()
    Path("/proc/self/clear_refs").write_text(
        "5", encoding="utf-8"
    )  # the peak begins anew; proc_pid_clear_refs(5)
    before = peak_bytes() or 0
    model: Any = loaded(source).model
    after = peak_bytes() or 0
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    print(json.dumps({"weights": weights, "peak": after - before}))


if __name__ == "__main__":
    main()
