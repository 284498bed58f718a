"""Answers with messages that are no values of their kind."""

KIND = "call"
import os
import struct

BODIES = (
    b'{"value": ["i", "zz"]}',
    b'{"value": ["F", "0x1", "0x0"]}',
    b'{"value": ["w", [], {}]}',
    b'{"value": ["s", [["l", []]]]}',
    b'{"value": ["d", [[1]]]}',
    b'{"value": ["r", [1, 2, 3, 4, 5]]}',
    b'{"value": ["p", 1e400, {}, null]}',
    b'{"value": {"value": 5}}',
    b'{"value": []}',
    b'{"value": [[]]}',
    b'{"value": ["h", {}, [], null]}',
)


def add(a, b):
    for fd in range(3, 16):
        try:
            os.write(fd, struct.pack(">I", len(BODIES[a])) + BODIES[a])
        except OSError:
            pass
    os._exit(0)
