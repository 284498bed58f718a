"""Opens processes as descriptors, signals, compares and advises them by these."""

KIND = "call"
import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_SEND_SIGNAL, KCMP, PROCESS_MADVISE, PROCESS_MRELEASE = 434, 424, 312, 440, 448


def add(a, b):
    for who in range(1, 300):
        opened = libc.syscall(PIDFD_OPEN, who, 0)
        if opened >= 0 and who != os.getpid():
            raise RuntimeError(f"ESCAPED: process {who} opened")
        for call in ((PIDFD_SEND_SIGNAL, opened, signal.SIGSTOP, None, 0), (PROCESS_MRELEASE, opened, 0)):
            if libc.syscall(*call) >= 0:
                raise RuntimeError(f"ESCAPED: {call[0]} of process {who}")
        if libc.syscall(KCMP, who, os.getpid(), 2, 0, 0) >= 0:
            raise RuntimeError(f"ESCAPED: process {who} compared")
