"""Modules that run in a process of their own, some with another Python: ``asked.json`` in, ``found.json`` out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perf.lm_eval_side import OFFLINE
from perf.measure import OURS


def run_side(
    module: str,
    python: Path | None,
    folder: Path,
    most: float,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Run a module on ``asked.json`` in a folder; return what it wrote to ``found.json``, or the reason why not.

    ``more`` is added to the environment.
    """
    command = [str(python.absolute() if python else sys.executable), "-m", module, str(folder)]
    # This Python's own packages may lie beside it, where PYTHONPATH says; another one has its own.
    beside = os.environ.get("PYTHONPATH", "") if python is None else ""
    path = os.pathsep.join(filter(None, (OURS["PYTHONPATH"], beside)))
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": path, **more}
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=most, check=False
        )
    except subprocess.TimeoutExpired:
        return f"left out: not ready after {most:.0f} s"
    if ended.returncode:
        lines = (ended.stderr.strip() or "no message").splitlines()
        last = next((line for line in reversed(lines) if "Error" in line), lines[-1])
        return f"failed: {last[:200]}"
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))
