"""The limits of a device, measured in the same run: matrix products, bandwidth, and what starting work costs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget
from perf.accelerator_parts.findings import Row
from perf.accelerator_parts.models import Setup, bare_model
from perf.accelerator_parts.shapes import Shape, Sizes, sizes
from perf.accelerator_parts.timing import begin_peak, seconds_each, synchronize, timed

PART = "limits"


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most of a device: operations per second of ``torch.mm``, bytes per second, and seconds to start a kernel."""

    matrix: float
    bandwidth: float
    launch: float
    matrix_size: int


@functools.cache
def peaks(device: str, dtype: str, small: bool) -> Peaks:
    """Measure the limits, once in a process."""
    import torch

    to: dict[str, Any] = {"device": device, "dtype": getattr(torch, dtype)}
    best, size_of_best = 0.0, 0
    for size in (512, 1024) if small else (4096, 8192) if device.startswith("cuda") else (1024, 2048):
        a, b = torch.randn(size, size, **to), torch.randn(size, size, **to)
        speed = 2.0 * size**3 / seconds_each(device, partial(torch.mm, a, b))
        best, size_of_best = max((best, size_of_best), (speed, size))
    count = 2**30 if device.startswith("cuda") else 2**24 if small else 2**28
    source = torch.zeros(count // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    copied = 2.0 * count / seconds_each(device, lambda: target.copy_(source))
    read = count / seconds_each(device, source.sum)
    tiny = torch.zeros(1, device=device)
    launch = seconds_each(device, lambda: tiny.add_(1), least=0.02)
    return Peaks(best, max(copied, read), launch, size_of_best)


def shape_speed(found: Sizes, rows: int, setup: Setup) -> float:
    """Return the operations per second of ``torch.mm`` with so many rows and the model's matrices, one after the
    other, in the proportions that they have in a pass."""
    return operations_of(found.matrices, rows) / seconds_of(found.matrices, rows, setup)


def operations_of(matrices: Mapping[tuple[int, int], int], rows: int) -> float:
    """Return the operations of so many rows through some matrices."""
    return sum(2.0 * rows * out * inner * many for (out, inner), many in matrices.items())


def seconds_of(matrices: Mapping[tuple[int, int], int], rows: int, setup: Setup) -> float:
    """Return the seconds that ``torch.mm`` takes for so many rows through some matrices."""
    import torch

    to: dict[str, Any] = {"device": setup.device, "dtype": getattr(torch, setup.dtype)}
    seconds = 0.0
    for (out, inner), many in matrices.items():
        given, weight = torch.randn(rows, inner, **to), torch.randn(out, inner, **to).t()
        each = seconds_each(setup.device, partial(torch.mm, given, weight), least=0.01)
        seconds += many * each
    return seconds


def measure(setup: Setup, budget: Budget) -> Iterator[Row]:
    """Yield the limits of the device, and of a step of each model."""
    most = peaks(setup.device, setup.dtype, setup.small)
    yield Row(
        *(PART, "device", setup.dtype),
        side="torch",
        figures={
            "torch.mm, TFLOP/s": most.matrix / 1e12,
            "with rows": most.matrix_size,
            "bandwidth, GB/s": most.bandwidth / 1e9,
            "start of a kernel, us": 1e6 * most.launch,
        },
    )
    for shape in setup.models:
        if budget.enough(5.0):
            work = partial(_model, shape, setup)
            yield from attempt(work, part=PART, model=shape.name, device=setup.device)
        else:
            yield Row(PART, shape.name, "its matrices", "torch", note="left out: no time")


def _model(shape: Shape, setup: Setup) -> list[Row]:
    found = sizes(shape)
    begin_peak(setup.device)
    rows = []
    for many in (64, 512) if setup.small else (1, 256, 8192):
        speed = shape_speed(found, many, setup)
        figures = {"torch.mm, TFLOP/s": speed / 1e12, "with rows": many}
        rows.append(Row(PART, shape.name, f"its matrices, {many} rows", "torch", figures))
    return [*rows, Row(PART, shape.name, "a step of 1 row", "plain forward", _step(shape, setup))]


def _step(shape: Shape, setup: Setup) -> dict[str, float | int]:
    """Return what one token through the plain model takes: until it is started, until it is done, and in kernels."""
    import torch

    model = bare_model(shape, setup)
    ids = torch.full((1, 1), 5, device=setup.device)

    def step() -> None:
        with torch.inference_mode():
            model(input_ids=ids)

    for _ in range(3):
        step()
    started = []
    for _ in range(10):
        synchronize(setup.device)
        began = time.perf_counter()
        step()
        started.append(time.perf_counter() - began)
    done = min(timed(setup.device, step)[0] for _ in range(10))
    launch = peaks(setup.device, setup.dtype, setup.small).launch
    kernels = _kernels(step, setup.device)
    return {
        "started, ms": 1e3 * min(started),
        "done, ms": 1e3 * done,
        "kernels": kernels,
        "share of starting them": kernels * launch / done,
    }


def _kernels(step: Callable[[], None], device: str) -> int:
    """Return how many kernels a step starts; on a CPU, the operations of torch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    if device.startswith("cuda"):
        return _kernels_seen(step, device)

    class Counting(TorchDispatchMode):
        """Counts operations."""

        operations: int = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.operations += 1
            return func(*args, **(kwargs or {}))

    counting = Counting()
    with counting:
        step()
    return counting.operations


def _kernels_seen(step: Callable[[], None], device: str) -> int:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step()
        synchronize(device)
    return sum(one.device_type.name == "CUDA" for one in seen.events() or ())
