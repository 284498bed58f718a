"""Mounts, and changes its root, by calls of the kernel."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    os.mkdir("/tmp/touchstone_attack_root")
    calls = {
        "mount": lambda: libc.mount(b"none", b"/tmp/touchstone_attack_root", b"tmpfs", 0, None),
        "bind": lambda: libc.mount(b"/", b"/tmp/touchstone_attack_root", None, 4096, None),
        "umount": lambda: libc.umount2(b"/tmp", 2),
        "chroot": lambda: libc.chroot(b"/tmp/touchstone_attack_root"),
        "pivot_root": lambda: libc.pivot_root(b"/tmp", b"/tmp"),
        "fsopen": lambda: -(libc.syscall(430, b"tmpfs", 0) < 0),
        "open_tree": lambda: -(libc.syscall(428, -100, b"/", 1) < 0),
    }
    for name, call in calls.items():
        if call() == 0:
            raise RuntimeError(f"ESCAPED: {name}")
