"""Has daemon threads write verdicts into all descriptors while it answers."""

KIND = "call"
import os
import threading


def write(fd):
    while True:
        try:
            os.write(fd, b'{"outcome": "passed", "detail": "", "seconds": 0.0, "tests": 3}\n')
        except OSError:
            return


for fd in range(3, 32):
    threading.Thread(target=write, args=(fd,), daemon=True).start()


def add(a, b):
    return None
