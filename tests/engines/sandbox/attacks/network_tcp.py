"""Connects to a port of the host's and to others outside."""

KIND = "call"
import socket


def add(a, b):
    for host in ("127.0.0.1", "localhost", "::1", "10.0.2.2", "172.17.0.1", "192.0.2.1", "8.8.8.8"):
        for port in (int("@PORT@"), 80, 443):
            try:
                socket.create_connection((host, port), timeout=0.05).sendall(b"passed")
            except OSError:
                continue
            raise RuntimeError(f"ESCAPED: connected to {host}")
