"""Speed on a CPU: C kernels, packed weights, half precision in float32, attention, pages and heap.

This is its door: the rest of the engine imports from here only (``lint-imports`` checks it). Nothing but speed, memory
and rounding depends on it. Where the door is shut (``processor.OPEN``), or where a function here has no answer, the
engine computes by torch's own operations.
"""

from __future__ import annotations

from pytest_touchstone.engines.transformers.cpu.kernels import (
    apply_rotary,
    attend,
    describe_cpu,
    has_kernels_for,
    log_sums,
    missing_kernels,
    rms_norm,
    silu_gate,
)
from pytest_touchstone.engines.transformers.cpu.memory import (
    GrowingHeap,
    MappedFiles,
    paged_zeros,
    release_pages,
    release_rows,
    supports_paged_tensors,
    trim_heap,
)
from pytest_touchstone.engines.transformers.cpu.packing import (
    PACKED,
    Packer,
    has_room_to_pack,
    keep_few_kernels,
    pack_for_steps,
)
from pytest_touchstone.engines.transformers.cpu.processor import (
    HALF,
    attend_all,
    attends_by_operation,
    computes_in_float32,
    in_float32,
    stored_type,
    upcast_once,
    widen_attention,
)
from pytest_touchstone.engines.transformers.cpu.steps import StepKernels

__all__ = [
    "HALF",
    "PACKED",
    "GrowingHeap",
    "MappedFiles",
    "Packer",
    "StepKernels",
    "apply_rotary",
    "attend",
    "attend_all",
    "attends_by_operation",
    "computes_in_float32",
    "describe_cpu",
    "has_kernels_for",
    "has_room_to_pack",
    "in_float32",
    "keep_few_kernels",
    "log_sums",
    "missing_kernels",
    "pack_for_steps",
    "paged_zeros",
    "release_pages",
    "release_rows",
    "rms_norm",
    "silu_gate",
    "stored_type",
    "supports_paged_tensors",
    "trim_heap",
    "upcast_once",
    "widen_attention",
]
