"""Turns on accounting and quotas, and syncs, trims or swaps the disks of the host."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    calls = {"acct": (163, b"/tmp/touchstone_attack"), "quotactl": (179, 0x800002, b"/dev/sda", 0, 0)}
    calls |= {"sync": (162,), "syncfs": (306, 1), "swapoff": (168, b"/swap"), "vhangup": (153,)}
    calls |= {
        "delete_module": (176, b"x", 0),
        "finit_module": (313, 0, b"", 0),
        "kexec_file_load": (320, 0, 0, 0, 0, 0),
    }
    for name, call in calls.items():
        if libc.syscall(*call) >= 0:
            raise RuntimeError(f"ESCAPED: {name}")
