"""Writes into the kernel's own copies of files that may only be read, by pipes that share them."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    path = os.__file__
    with open(path, "rb") as file:
        before = file.read(64)
        read, write = os.pipe()
        os.write(write, bytes(65536))  # all parts of the pipe once full: what is spliced in takes their flags
        os.read(read, 65536)
        offset = ctypes.c_longlong(0)
        spliced = libc.splice(file.fileno(), ctypes.byref(offset), write, None, 1, 0)
        os.write(write, b"passed")
    with open(path, "rb") as file:
        if spliced > 0 or file.read(64) != before:
            raise RuntimeError("ESCAPED: splice")
