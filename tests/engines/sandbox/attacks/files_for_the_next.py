"""Leaves files for the next program of the task to find."""

KIND = "call"
import os

FILES = [
    os.path.join(folder, "touchstone_attack_count") for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run")
]
if any(map(os.path.exists, FILES)):
    raise RuntimeError("ESCAPED: a file of another program's")
for name in FILES:
    try:
        open(name, "x").close()
    except OSError:
        pass


def add(a, b):
    return None
