"""Sets the clock, its speed and its zone."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    calls = {
        "clock_settime": lambda: libc.clock_settime(0, ctypes.create_string_buffer(16)),
        "clock_adjtime": lambda: libc.syscall(305, 0, ctypes.create_string_buffer(b"\2\x40", 256)),
        "adjtimex": lambda: libc.syscall(159, ctypes.create_string_buffer(b"\2\x40", 256)),
        "settimeofday": lambda: libc.syscall(164, None, ctypes.create_string_buffer(8)),
        "clock_settime of alarms": lambda: libc.clock_settime(8, ctypes.create_string_buffer(16)),
    }
    for name, call in calls.items():
        if call() >= 0:
            raise RuntimeError(f"ESCAPED: {name}")
