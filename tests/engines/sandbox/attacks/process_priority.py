"""Gives itself the first place: nice, real-time scheduling, all cores, memory that is never swapped."""

KIND = "call"
import ctypes
import os


def add(a, b):
    for way in (os.SCHED_FIFO, os.SCHED_RR):
        try:
            os.sched_setscheduler(0, way, os.sched_param(99))
        except OSError:
            continue
        raise RuntimeError("ESCAPED: real-time scheduling")
    try:
        os.nice(-20)
    except OSError:
        return None
    ctypes.CDLL(None).mlockall(7)
    raise RuntimeError("ESCAPED: priority")
