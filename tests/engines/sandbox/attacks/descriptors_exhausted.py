"""Opens descriptors until there are no more, and keeps them."""

KIND = "call"
import os
import socket

held = []
try:
    while True:
        held += socket.socketpair()
except OSError:
    pass
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDWR))
except OSError:
    pass


def add(a, b):
    return open("/tmp/touchstone_attack", "w")
