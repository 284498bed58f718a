"""Prints, ends, and leaves a child that holds the output open and prints more."""

KIND = "stdio"
import os
import time

if os.fork() == 0:
    while True:
        try:
            os.write(1, b"5\n")
        except OSError:
            pass
        time.sleep(0.01)
os._exit(0)
