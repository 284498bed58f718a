"""Takes descriptors from other processes by pidfd_getfd."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    for who in range(1, 300):
        if who == os.getpid():
            continue
        try:
            held = os.pidfd_open(who)
        except OSError:
            continue
        if any(libc.syscall(438, held, fd, 0) >= 0 for fd in range(64)):
            raise RuntimeError(f"ESCAPED: descriptors of {who}")
