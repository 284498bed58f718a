"""Has the handler of faults end the process after a moment, and write into every descriptor."""

KIND = "call"
import faulthandler
import signal
import time


def add(a, b):
    for fd in range(3, 8):
        try:
            faulthandler.enable(fd)
            faulthandler.register(signal.SIGUSR1, fd)
        except (OSError, ValueError):
            continue
    faulthandler.dump_traceback_later(0.01, exit=True)
    time.sleep(1)
