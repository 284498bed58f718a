"""Closes one half of its connection after the other, so that each side takes the other for gone."""

KIND = "call"
import os
import socket

seen = []


def add(a, b):
    seen.append(a)
    with socket.socket(fileno=os.dup(3)) as end:
        end.shutdown(socket.SHUT_RD if len(seen) == 1 else socket.SHUT_WR)
