"""Tries calls of the kernel that programs have no need of."""

KIND = "call"
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
CALLS = {
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, ctypes.create_string_buffer(b"\1\0\0\0\x80", 128), 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "io_uring_setup": (425, 8, ctypes.create_string_buffer(256)),
    "keyctl": (250, 0, -3, 1),
    "add_key": (248, b"user", b"touchstone", b"x", 1, -3),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, b""),
    "syslog": (103, 3, ctypes.create_string_buffer(64), 64),
    "settimeofday": (164, ctypes.create_string_buffer(16), 0),
    "sethostname": (170, b"passed", 6),
    "swapon": (167, b"/tmp", 0),
    "reboot": (169, 0, 0, 0),
}


def add(a, b):
    open_ones = [name for name, call in CALLS.items() if libc.syscall(*call) >= 0]
    if open_ones:
        raise RuntimeError(f"ESCAPED: {open_ones}")
