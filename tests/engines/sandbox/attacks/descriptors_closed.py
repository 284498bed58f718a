"""Closes all descriptors and lives on."""

KIND = "call"
import os
import time

os.closerange(0, 4096)


def add(a, b):
    time.sleep(1000)


time.sleep(1000)
