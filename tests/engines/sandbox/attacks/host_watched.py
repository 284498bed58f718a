"""Watches the files of the host, to see what others open."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    watching = libc.inotify_init1(0)
    if watching >= 0 and libc.inotify_add_watch(watching, b"/usr/lib", 0xFFF) >= 0:
        raise RuntimeError("ESCAPED: inotify")
    if libc.syscall(300, 0, 0) >= 0:
        raise RuntimeError("ESCAPED: fanotify")
    if libc.syscall(212, 0, b"/", ctypes.create_string_buffer(64)) >= 0:
        raise RuntimeError("ESCAPED: lookup_dcookie")
