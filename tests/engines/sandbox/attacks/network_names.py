"""Asks for the addresses of names, by which secrets can be sent out."""

KIND = "call"
import socket


def add(a, b):
    socket.setdefaulttimeout(0.2)
    try:
        found = socket.getaddrinfo("passed.example.com", 80)
    except OSError:
        return None
    raise RuntimeError(f"ESCAPED: {found}")
