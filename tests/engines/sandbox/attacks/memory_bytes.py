"""Asks for two gigabytes at once."""

KIND = "call"


def add(a, b):
    filled = bytearray(b"x") * (2 << 30)
    raise RuntimeError(f"ESCAPED: {len(filled)} bytes")
