"""Asks for another personality of the kernel: fixed addresses, memory that can be run, another system."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    for kind in (0x0040000, 0x0400000, 0x0100000, 0x0008, 0x0800000):
        if libc.personality(kind) >= 0:
            raise RuntimeError(f"ESCAPED: personality {kind:x}")
