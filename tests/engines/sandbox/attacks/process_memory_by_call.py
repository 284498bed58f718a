"""Reads and writes the memory of other processes by calls of their own, past /proc."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def add(a, b):
    held = ctypes.create_string_buffer(8)
    mine = Part(ctypes.addressof(held), 8)
    for who in (*range(1, 300), os.getppid()):
        for call in (libc.process_vm_readv, libc.process_vm_writev):
            there = Part(id(None), 8)
            if call(who, ctypes.byref(mine), 1, ctypes.byref(there), 1, 0) >= 0:
                raise RuntimeError(f"ESCAPED: memory of {who}")
