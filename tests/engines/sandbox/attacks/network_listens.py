"""Waits for someone to connect from outside."""

KIND = "call"
import socket


def add(a, b):
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.listen()
        server.accept()
