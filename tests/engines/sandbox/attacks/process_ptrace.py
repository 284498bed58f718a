"""Attaches itself as a debugger to every other process."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
ATTACH, SEIZE = 16, 0x4206


def add(a, b):
    for who in range(1, 300):
        if who != os.getpid():
            for way in (SEIZE, ATTACH):
                if libc.ptrace(way, who, None, None) == 0:
                    raise RuntimeError(f"ESCAPED: attached to {who}")
