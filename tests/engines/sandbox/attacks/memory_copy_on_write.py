"""Writes to a file that may only be read while the kernel makes a copy of its page."""

KIND = "call"
import ctypes
import mmap
import os
import threading

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
path = os.__file__
with open(path, "rb") as file:
    before = file.read(16)
    page = libc.mmap(None, 4096, 3, mmap.MAP_PRIVATE, file.fileno(), ctypes.c_long(0))
over = threading.Event()


def forget():
    while not over.is_set():
        libc.madvise(ctypes.c_void_p(page), 4096, 4)


def add(a, b):
    other = threading.Thread(target=forget, daemon=True)
    other.start()
    for _ in range(20_000):
        ctypes.memset(page, 80, 1)
    over.set()
    with open(path, "rb") as file:
        if file.read(16) != before:
            raise RuntimeError("ESCAPED: the page of a file")
