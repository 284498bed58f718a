"""Looks for what other programs have left."""

KIND = "call"
import os

for folder in ("/tmp", ".", "/dev/shm", "/var/tmp", "/run", "/"):
    try:
        names = [name for name in os.listdir(folder) if "touchstone_attack" in name]
    except OSError:
        names = []
    if names:
        raise RuntimeError(f"ESCAPED: {folder} has {names}")


def add(a, b):
    return None
