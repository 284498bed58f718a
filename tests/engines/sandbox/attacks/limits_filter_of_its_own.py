"""Filters its own system calls, so that those of the interpreter do nothing and say that they did."""

KIND = "call"
import ctypes
import struct

libc = ctypes.CDLL(None, use_errno=True)


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def add(a, b):
    allow_all = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
    made = Filter(1, allow_all)
    if libc.syscall(317, 1, 8, ctypes.byref(made)) >= 0 or libc.prctl(22, 2, ctypes.byref(made), 0, 0) == 0:
        raise RuntimeError("ESCAPED: a filter with a listener")
    if libc.syscall(444, None, 0, 1) >= 0 or libc.syscall(446, 3, 0) >= 0:
        raise RuntimeError("ESCAPED: rules of landlock")
