"""Fills the memory, catches the error and tries again with less."""

KIND = "call"


def add(a, b):
    kept, size = [], 1 << 28
    while True:
        try:
            kept.append(bytearray(b"x") * size)
            if sum(map(len, kept)) > 2 << 30:
                raise RuntimeError("ESCAPED: two gigabytes")
        except MemoryError:
            size = max(size // 2, 1)
