"""Returns texts that can't be encoded, and bytes of every kind."""

KIND = "call"


def add(a, b):
    return ["\ud800\udfff\udcff", "\0" * 100, b"\xff\0", bytearray(b"\n\n"), "\u202epassed"]
