"""Tells the kernel that its memory is broken, to be shared or to be taken from a file."""

KIND = "call"
import ctypes
import mmap
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def add(a, b):
    page = libc.mmap(None, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
    for name, advice in (("broken", 100), ("soon broken", 101)):
        if libc.madvise(ctypes.c_void_p(page), 4096, advice) == 0:
            raise RuntimeError(f"ESCAPED: {name} memory")
    with open(os.__file__, "rb") as file:
        shared = libc.mmap(None, 4096, 1, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))
    for advice in (9, 12, 15, 21, 23):
        libc.madvise(ctypes.c_void_p(page), 4096, advice)
    if libc.madvise(ctypes.c_void_p(shared), 4096, 9) == 0:
        raise RuntimeError("ESCAPED: a hole in a file")
    if libc.mprotect(ctypes.c_void_p(shared), 4096, 3) == 0:
        raise RuntimeError("ESCAPED: a file that can be written in memory")
