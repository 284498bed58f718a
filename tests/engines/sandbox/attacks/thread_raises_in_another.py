"""Has a thread raise SystemExit, StopIteration and whatever else in the thread that answers."""

KIND = "call"
import ctypes
import threading
import time

answering = ctypes.c_ulong(threading.get_ident())


def raising():
    while True:
        for kind in (StopIteration, SystemExit, KeyboardInterrupt, AssertionError):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(answering, ctypes.py_object(kind))
            time.sleep(0.001)


def add(a, b):
    threading.Thread(target=raising, daemon=True).start()
    time.sleep(0.01)
