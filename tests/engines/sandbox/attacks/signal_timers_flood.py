"""Makes timers by the hundred thousand that all signal at once."""

KIND = "call"
import ctypes
import signal

libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGALRM, signal.SIG_IGN)


class Spec(ctypes.Structure):
    _fields_ = [("times", ctypes.c_long * 4)]


def add(a, b):
    made = 0
    for _ in range(100_000):
        timer = ctypes.c_int()
        if libc.syscall(222, 1, None, ctypes.byref(timer)) < 0:
            break
        libc.syscall(223, timer, 0, ctypes.byref(Spec((ctypes.c_long * 4)(0, 1000, 0, 1000))), None)
        made += 1
    return made
