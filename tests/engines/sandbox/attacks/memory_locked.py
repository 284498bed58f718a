"""Takes pages that are huge, locked or secret, of which the machine has few."""

KIND = "call"
import ctypes
import mmap

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def add(a, b):
    size = 2**21
    for flags in (0x40000, 0x40000 | 30 << 26):
        page = libc.mmap(None, size, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags, -1, ctypes.c_long(0))
        if page not in (None, 2**64 - 1):
            ctypes.memset(page, 1, size)
    held = ctypes.create_string_buffer(size)
    if libc.mlock(held, size) == 0 or libc.mlockall(2) == 0 or libc.syscall(447, 0) >= 0:
        raise RuntimeError("ESCAPED: locked or secret memory")
