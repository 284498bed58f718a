"""The library of torch's that computes faster on this machine's processor.

The answer depends on the processor's maker and its instructions alone. A trial by the clock might choose otherwise in
the next run, whose numbers would then be rounded otherwise.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import Any, Final

_INTEL: Final = "GenuineIntel"

_DESCRIPTION: Final = Path("/proc/cpuinfo")


@functools.cache
def mkl_is_faster() -> bool:
    """Return whether products of float32 numbers by MKL, and attention that uses them, are faster than by oneDNN.

    They are on Intel's processors (docs/performance.md). On AMD's, oneDNN is.
    """
    import torch

    kernels: Any = torch.backends.mkl  # torch has no types for it
    return bool(kernels.is_available()) and _maker(_DESCRIPTION) == _INTEL


def products_attend_faster() -> bool:
    """Return whether many queries meet many keys faster in oneDNN's products than in torch's operation for attention.

    They do on AMD's processors with AVX-512. With AVX2 the operation took 0.6 times as long (docs/performance.md).
    """
    import torch

    return not mkl_is_faster() and torch.backends.cpu.get_cpu_capability() != "AVX2"


def _maker(description: Path) -> str:
    """Return what a processor calls its maker; Windows names it in another place than Linux."""
    try:
        lines = description.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), None)
    return found or (_INTEL if _INTEL in platform.processor() else "")
