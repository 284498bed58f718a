"""Makes namespaces of its own, in which it is root, and enters those of others."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
FLAGS = {"user": 0x10000000, "mount": 0x00020000, "net": 0x40000000, "pid": 0x20000000, "ipc": 0x08000000}


def add(a, b):
    for name, flag in FLAGS.items():
        for more in (0, FLAGS["user"]):
            if libc.unshare(flag | more) == 0:
                raise RuntimeError(f"ESCAPED: a {name} namespace")
    for name in ("user", "mnt", "net", "pid"):
        try:
            held = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        if os.stat(held) != os.stat(f"/proc/self/ns/{name}") and libc.setns(held, 0) == 0:
            raise RuntimeError(f"ESCAPED: into a {name} namespace")
