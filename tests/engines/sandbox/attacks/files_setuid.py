"""Leaves files that whoever runs them would run with its rights or more."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    with open("/tmp/touchstone_attack", "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod("/tmp/touchstone_attack", 0o6777)
    rights = b"\1\0\0\2" + b"\xff" * 16
    for name, value in ((b"security.capability", rights), (b"trusted.x", b"x"), (b"user.x", b"x" * 60_000)):
        if libc.setxattr(b"/tmp/touchstone_attack", name, value, len(value), 0) == 0:
            raise RuntimeError(f"ESCAPED: {name}")
    os.chown("/tmp/touchstone_attack", 0, 0)
    raise RuntimeError("ESCAPED: a file of root's")
