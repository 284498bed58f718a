"""Answers with many sets of which each has one member many times."""

KIND = "call"
import json
import os
import struct


def add(a, b):
    body = json.dumps({"value": ["l", [["s", [0] * 200]] * 20_000]}).encode()
    with open(3, "wb", closefd=False) as file:
        file.write(struct.pack(">I", len(body)) + body)
    os._exit(0)
