"""Asks the tests' side to call functions of which it was never given one."""

KIND = "call"
import json
import os
import struct


def add(a, b):
    for number in (0, -1, 10**30, "x", None, [], {"a": 1}, 1.5, True):
        body = json.dumps({"callback": number, "arguments": ["t", []], "keywords": ["d", []]}).encode()
        for fd in range(3, 16):
            try:
                os.write(fd, struct.pack(">I", len(body)) + body)
            except OSError:
                pass
