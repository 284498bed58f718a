"""Closes its outputs and lives on."""

KIND = "stdio"
import os
import time

for fd in (0, 1, 2):
    os.close(fd)
time.sleep(1_000_000)
