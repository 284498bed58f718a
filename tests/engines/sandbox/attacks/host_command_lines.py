"""Reads the command lines of all processes that it can see."""

KIND = "call"
import glob
import os


def add(a, b):
    own = os.path.exists("/proc/self") and os.readlink("/proc/self")
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with open(path, "rb") as file:
            found.append(file.read().replace(b"\0", b" ").decode())
    if any("pytest" in words for words in found):
        raise RuntimeError(f"ESCAPED: {found} seen by {own}")
