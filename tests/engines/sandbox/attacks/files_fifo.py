"""Leaves pipes with names and devices in /tmp, and waits at them for whoever comes."""

KIND = "call"
import os
import stat


def add(a, b):
    for kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
        try:
            os.mknod(f"/tmp/touchstone_attack_{kind}", kind | 0o777, os.makedev(1, 3))
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: a file of kind {kind:o}")
    os.mkfifo("/tmp/touchstone_attack")
    open("/tmp/touchstone_attack").read()
