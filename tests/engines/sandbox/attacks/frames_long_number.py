"""Answers with a number of sixteen million digits, which takes hours to read."""

KIND = "call"
import os
import struct


def add(a, b):
    body = b'{"value": ' + b"7" * (16 * 2**20 - 64) + b"}"
    with open(3, "wb", closefd=False) as file:
        file.write(struct.pack(">I", len(body)) + body)
    os._exit(0)
