"""Shares two gigabytes out among many processes, each below the limit."""

KIND = "call"
import os
import time


def add(a, b):
    made = 0
    for _ in range(20):
        try:
            if os.fork() == 0:
                try:
                    kept = bytearray(b"x") * (100 << 20)
                    time.sleep(0.6)
                    os._exit(7 if kept else 1)
                finally:
                    os._exit(1)
            made += 1
        except OSError:
            break
    held = sum(os.waitstatus_to_exitcode(os.wait()[1]) == 7 for _ in range(made))
    if held > 15:
        raise RuntimeError(f"ESCAPED: {held} processes of 100 MiB")
