"""Says again and again that answers are still to come, and gives none."""

KIND = "call"
TASK = "plus"
import json
import os
import struct


def f(n):
    body = json.dumps({"each": [[], None, n % 2 == 0]}).encode()
    for _ in range(50):
        for fd in range(3, 16):
            try:
                os.write(fd, struct.pack(">I", len(body)) + body)
            except OSError:
                pass
    return None
