"""Keeps memory in System V segments, which outlive the process."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


def add(a, b):
    for number in range(16):
        segment = libc.shmget(0x70C4 + number, ctypes.c_size_t(1 << 27), 0o1600)
        if segment < 0:
            return None
        place = libc.shmat(segment, None, 0)
        if place in (None, 2**64 - 1):
            return None
        ctypes.memset(place, 1, 1 << 27)
    raise RuntimeError("ESCAPED: two gigabytes shared")
