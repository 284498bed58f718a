"""Puts characters into the controlling terminal's input."""

KIND = "call"
import fcntl
import termios


def add(a, b):
    for fd in range(3):
        for byte in b"exit\n":
            fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))
