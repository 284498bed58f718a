"""Answers with many sets that say their tables are the largest there are."""

KIND = "call"
import json
import os
import struct


def add(a, b):
    body = json.dumps({"value": ["l", [["s", 2**20, [], []]] * 100_000]}).encode()
    with open(3, "wb", closefd=False) as file:
        file.write(struct.pack(">I", len(body)) + body)
    os._exit(0)
