"""Connects to abstract sockets, which no file system hides."""

KIND = "call"
import socket


def add(a, b):
    names = ["\0touchstone_attack_@PORT@", "/run/docker.sock", "/var/run/docker.sock", "/tmp/.X11-unix/X0"]
    try:
        with open("/proc/net/unix") as file:
            names += [line.split()[-1].replace("@", "\0", 1) for line in file if "@" in line or "/" in line]
    except OSError:
        pass
    for name in names:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                with socket.socket(socket.AF_UNIX, kind) as one:
                    one.settimeout(0.1)
                    one.connect(name)
                    one.send(b"passed")
            except OSError:
                continue
            raise RuntimeError(f"ESCAPED: connected to {name!r}")
