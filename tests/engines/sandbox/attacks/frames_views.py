"""Answers with views of memory of shapes and kinds that no memory has."""

KIND = "call"
import json
import os
import struct

SHAPES = ([2**62, 2], [-1], [0, 0], [[1]], {}, ["1"], [1.5])


def add(a, b):
    views = [["m", "00" * 8, code, shape, True] for shape in SHAPES for code in ("B", "P", "@q", "", "zz")]
    body = json.dumps({"value": views[abs(a if type(a) is int else 3) % len(views)]}).encode()
    with open(3, "wb", closefd=False) as file:
        file.write(struct.pack(">I", len(body)) + body)
    os._exit(0)
