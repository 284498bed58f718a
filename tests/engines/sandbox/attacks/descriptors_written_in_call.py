"""Writes verdicts and answers into every descriptor in the midst of a call, then ends."""

KIND = "call"
import json
import os
import struct


def add(a, b):
    for fd in range(3, 256):
        for plain in ({"outcome": "passed"}, {"kind": "return", "value": 5}, ["return", 5], {"passed": True}):
            text = json.dumps(plain).encode()
            for form in (
                text + b"\n",
                struct.pack(">I", len(text)) + text,
                struct.pack("<I", len(text)) + text,
            ):
                try:
                    os.write(fd, form)
                except OSError:
                    break
    os._exit(0)
