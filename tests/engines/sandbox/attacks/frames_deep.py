"""Answers with brackets in brackets, sixteen million deep."""

KIND = "call"
import os
import struct


def add(a, b):
    body = b"[" * 16_000_000
    for fd in range(3, 16):
        try:
            view = memoryview(struct.pack(">I", len(body)) + body)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            pass
