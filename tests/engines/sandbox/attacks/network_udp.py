"""Sends packets without a connection."""

KIND = "call"
import socket


def add(a, b):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for host in ("127.0.0.1", "255.255.255.255", "192.0.2.1", "8.8.8.8"):
        try:
            sender.sendto(b"passed", (host, int("@PORT@")))
        except OSError:
            pass
