"""All that is faster on a CPU alone: kernels in C, packed weights, half precision by float32, attention by products,
pages and heap.

This is its door: the rest of the engine imports from here only (``lint-imports`` checks it). Nothing but speed, memory
and rounding depends on it. Where the door is shut (``processor.OPEN``), or where a function here has no answer, the
engine computes by torch's own operations.
"""

from __future__ import annotations

from pytest_touchstone.engines.transformers.cpu.kernels import (
    attend,
    computes,
    description,
    gated,
    log_sums,
    missing_kernels,
    rms_norm,
    turn,
)
from pytest_touchstone.engines.transformers.cpu.memory import (
    GrowingHeap,
    MappedFiles,
    can_be_apart,
    give_back,
    let_go,
    trim_heap,
    zeros_apart,
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
    widen_attention,
    widened,
)
from pytest_touchstone.engines.transformers.cpu.steps import StepKernels

__all__ = [
    "HALF",
    "PACKED",
    "GrowingHeap",
    "MappedFiles",
    "Packer",
    "StepKernels",
    "attend",
    "attend_all",
    "attends_by_operation",
    "can_be_apart",
    "computes",
    "computes_in_float32",
    "description",
    "gated",
    "give_back",
    "has_room_to_pack",
    "in_float32",
    "keep_few_kernels",
    "let_go",
    "log_sums",
    "missing_kernels",
    "pack_for_steps",
    "rms_norm",
    "stored_type",
    "trim_heap",
    "turn",
    "widen_attention",
    "widened",
    "zeros_apart",
]
