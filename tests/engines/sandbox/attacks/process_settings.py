"""Changes what the kernel knows of the process: its parent's death, its privileges, who may trace it."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
NAMES = {
    1: "death of the parent",
    4: "core",
    8: "keep capabilities",
    15: "name",
    24: "capability",
    28: "bits",
}
NAMES |= {29: "slack", 35: "memory map", 36: "reaper", 47: "ambient", 0x59616D61: "tracer"}


def add(a, b):
    changed = [name for number, name in NAMES.items() if libc.prctl(number, 1, 1, 0, 0) == 0]
    for call in (os.setsid, os.setpgrp, lambda: os.setpgid(0, 1)):
        try:
            call()
        except OSError:
            continue
        changed.append("group")
    if changed:
        raise RuntimeError(f"ESCAPED: {changed}")
