"""Asks for the machine's ports and for segments of its own."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    calls = {
        "iopl": (172, 3),
        "ioperm": (173, 0, 64, 1),
        "modify_ldt": (154, 0, ctypes.create_string_buffer(64), 64),
    }
    calls |= {"pciconfig": (198, 0, 0, 0, 0, 0), "arch_prctl of vsyscall": (158, 0x2003, 0)}
    for name, call in calls.items():
        if libc.syscall(*call) >= 0:
            raise RuntimeError(f"ESCAPED: {name}")
