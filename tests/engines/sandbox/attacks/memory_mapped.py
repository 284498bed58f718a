"""Maps memory without a file, shared, and touches it."""

KIND = "call"
import mmap


def add(a, b):
    kept = []
    for _ in range(16):
        mapped = mmap.mmap(-1, 1 << 27)
        for place in range(0, 1 << 27, 4096):
            mapped[place] = 1
        kept.append(mapped)
    raise RuntimeError("ESCAPED: two gigabytes mapped")
