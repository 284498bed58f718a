"""Leaves semaphores and queues of messages in the kernel, which outlive the process."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
KEY = 0x70A57


def add(a, b):
    found = {
        "semaphores": libc.semget(KEY, 4, 0o1777),
        "queue": libc.msgget(KEY, 0o1777),
        "named queue": libc.syscall(240, b"touchstone_attack", 0o102, 0o777, None),
    }
    made = [name for name, number in found.items() if number >= 0]
    if made:
        raise RuntimeError(f"ESCAPED: {made}")
