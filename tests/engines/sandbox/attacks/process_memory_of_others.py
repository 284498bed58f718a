"""Reads the memory of other processes through /proc."""

KIND = "call"
import os


def add(a, b):
    own = os.path.exists("/proc/self") and int(os.readlink("/proc/self"))
    for who in range(1, 300):
        if who == own:
            continue
        try:
            with open(f"/proc/{who}/mem", "r+b", buffering=0) as memory, open(f"/proc/{who}/maps") as maps:
                memory.seek(int(maps.readline().split("-")[0], 16))
                memory.read(16)
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: memory of {who}")
