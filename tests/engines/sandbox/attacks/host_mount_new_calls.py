"""Mounts by the newer calls of the kernel, and changes what is mounted."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    writable = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    calls = {
        "mount_setattr": (442, -100, b"/", 0x8000, writable, 32),
        "fspick": (433, -100, b"/", 0),
        "open_tree": (428, -100, b"/tmp", 0x8001),
        "move_mount": (429, -100, b"/tmp", -100, b"/usr", 0),
        "fsmount": (432, 3, 0, 0),
        "listmount": (458, ctypes.create_string_buffer(32), ctypes.create_string_buffer(512), 64, 0),
        "statmount": (457, ctypes.create_string_buffer(32), ctypes.create_string_buffer(512), 512, 0),
    }
    for name, call in calls.items():
        if libc.syscall(*call) >= 0:
            raise RuntimeError(f"ESCAPED: {name}")
