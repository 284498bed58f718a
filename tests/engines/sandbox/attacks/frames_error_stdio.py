"""Sends reports of errors that are none, to confuse who reads them, and ends with status 1."""

KIND = "stdio"
import json
import os
import struct

for plain in (
    {"types": 5},
    {"types": {"a": 1}},
    {"types": [[]], "text": {}},
    {"types": [], "line": "x"},
    {},
    [],
):
    body = json.dumps(plain).encode()
    for fd in range(3, 16):
        try:
            os.write(fd, struct.pack(">I", len(body)) + body)
        except OSError:
            pass
    break
os._exit(1)
