"""Looks for a descriptor of a folder outside, from which all files could be reached."""

KIND = "call"
import os
import stat


def add(a, b):
    for fd in range(256):
        try:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                inside = os.open("..", os.O_RDONLY, dir_fd=fd)
                raise RuntimeError(f"ESCAPED: a folder {os.listdir(inside)}")
        except OSError:
            pass
