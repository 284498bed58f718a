"""Sends messages that are an answer, an error, an end and a question all at once, with every key twice."""

KIND = "call"
import os
import struct

BODY = (
    b'{"error": {"types": ["AssertionError"]}, "value": 5, "end": true, "ready": true, "error": null, '
    b'"callback": 0, "arguments": ["t", []], "keywords": ["d", []], "value": ["T", "bool"], "each": [[], null, true]}'
)


def add(a, b):
    for _ in range(20):
        os.write(3, struct.pack(">I", len(BODY)) + BODY)
    os._exit(0)
