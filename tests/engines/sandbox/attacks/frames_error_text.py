"""Answers with an error whose text, line and code are large and deep."""

KIND = "call"
import os
import struct

DEEP = b"[" * 400 + b"]" * 400
BODY = b'{"error": {"types": ["ValueError"], "text": ' + DEEP + b', "line": 1e999, "code": ' + DEEP + b"}}"


def add(a, b):
    for fd in range(3, 16):
        try:
            os.write(fd, struct.pack(">I", len(BODY)) + BODY)
        except OSError:
            pass
    os._exit(0)
