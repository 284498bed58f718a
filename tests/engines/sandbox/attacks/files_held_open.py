"""Keeps files of /tmp open, mapped, as its folder and on their way through sockets, so that it cannot be taken away."""

KIND = "call"
import mmap
import os
import socket

held = []


def add(a, b):
    os.makedirs("/tmp/touchstone_attack/inner", exist_ok=True)
    os.chdir("/tmp/touchstone_attack/inner")
    with open("file", "w+b") as file:
        file.write(bytes(2**20))
        file.flush()
        held.append(mmap.mmap(file.fileno(), 2**20))
        os.unlink("file")
        os.rmdir("/tmp/touchstone_attack/inner")
        with socket.socket(fileno=os.dup(3)) as end:
            for _ in range(100):
                socket.send_fds(end, [b"\0"], [file.fileno()] * 50)
