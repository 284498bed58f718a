"""Makes every clock stand still, so that no time passes while it never ends."""

KIND = "call"
import time

for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"):
    setattr(time, name, lambda *_: 0.0)
    if hasattr(time, f"{name}_ns"):
        setattr(time, f"{name}_ns", lambda *_: 0)


def add(a, b):
    while time.time() < 1:
        pass
