"""Makes more processes than anyone needs."""

KIND = "call"
import os
import time

count = 0


def add(a, b):
    global count
    try:
        while count < 1000:
            if os.fork() == 0:
                time.sleep(100)
                os._exit(0)
            count += 1
    except OSError:
        return None
    raise RuntimeError("ESCAPED: 1000 processes")
