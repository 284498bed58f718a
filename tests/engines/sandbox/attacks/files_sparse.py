"""Makes a file of a terabyte that holds nothing."""

KIND = "call"
import os


def add(a, b):
    with open("/tmp/touchstone_attack_sparse", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    raise RuntimeError("ESCAPED: a file of a terabyte")
