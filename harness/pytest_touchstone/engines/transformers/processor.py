"""This machine's processor: its instructions, and the library of torch's that computes faster on it.

The choice depends on the processor's maker and its instructions alone. A trial by the clock might choose otherwise in
the next run, whose numbers would then be rounded otherwise.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import Any, Final

_INTEL: Final = "GenuineIntel"

DESCRIPTION: Final = Path("/proc/cpuinfo")
"""The file in which Linux describes the processor."""


@functools.cache
def mkl_is_faster() -> bool:
    """Return whether products of float32 numbers by MKL, and attention that uses them, are faster than by oneDNN.

    They are on Intel's processors. On AMD's, oneDNN is.
    """
    import torch

    kernels: Any = torch.backends.mkl  # torch has no types for it
    return bool(kernels.is_available()) and _maker(DESCRIPTION) == _INTEL


def products_attend_faster() -> bool:
    """Return whether many queries meet many keys faster in oneDNN's products than in torch's operation for attention.

    They do on AMD's processors with AVX-512. With AVX2 the operation took 0.6 times as long.
    """
    import torch

    return not mkl_is_faster() and torch.backends.cpu.get_cpu_capability() != "AVX2"


def instructions() -> set[str]:
    """Return the names of the instructions that a processor has beyond the common ones; none where Linux does not say
    so."""
    return set(_said("flags", DESCRIPTION).split())


def _maker(description: Path) -> str:
    """Return what a processor calls its maker; Windows names it in another place than Linux."""
    return _said("vendor_id", description) or (_INTEL if _INTEL in platform.processor() else "")


def _said(name: str, description: Path) -> str:
    """Return what a processor's description has under a name, nothing where it has none."""
    try:
        lines = description.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
