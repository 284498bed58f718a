"""Opens raw, packet, netlink and other kinds of sockets."""

KIND = "call"
import socket


def add(a, b):
    opened = []
    for family in range(1, 46):
        if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            continue
        for kind in (1, 2, 3, 5):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            opened.append(family)
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.socket(family, socket.SOCK_RAW, 1).close()
        except OSError:
            continue
        opened.append(family)
    if opened:
        raise RuntimeError(f"ESCAPED: sockets of the families {sorted(set(opened))}")
