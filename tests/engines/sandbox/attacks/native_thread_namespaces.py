"""Makes threads that ask for namespaces, or for another parent, besides."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
THREAD = 0x00010000 | 0x00000800 | 0x00000100  # THREAD, SIGHAND, VM


def add(a, b):
    # without a stack of its own a thread would not live: only what the kernel refuses before matters
    for name, flag in (("user", 0x10000000), ("pid", 0x20000000), ("mount", 0x00020000), ("net", 0x40000000)):
        if libc.syscall(56, THREAD | flag, 0, 0, 0, 0) > 0:
            raise RuntimeError(f"ESCAPED: a thread in a {name} namespace")
    for flags in (0x00000100 | 17, 0x00004000 | 0x00000100 | 17, 0x00008000 | 17):
        if libc.syscall(56, flags, 0, 0, 0, 0) > 0:
            raise RuntimeError("ESCAPED: a process of clone's")
    if libc.syscall(435, ctypes.create_string_buffer(88), 88) > 0:
        raise RuntimeError("ESCAPED: a process of clone3's")
