"""Leaves files wherever it can, for the next program or the user to find."""

KIND = "call"
import os


def add(a, b):
    for folder in (
        ".",
        "/tmp",
        "/dev/shm",
        "/var/tmp",
        "/root",
        "/home",
        "/",
        "/run",
        "/dev",
        "/usr/lib",
        "/etc",
    ):
        try:
            with open(os.path.join(folder, "touchstone_attack_left"), "x") as file:
                file.write("passed")
        except OSError:
            pass
    return None
