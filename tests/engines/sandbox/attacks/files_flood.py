"""Fills /tmp with one file."""

KIND = "call"


def add(a, b):
    written = 0
    with open("/tmp/touchstone_attack_flood", "wb", buffering=0) as file:
        while written < 2 << 30:
            written += file.write(b"x" * (1 << 20))
    raise RuntimeError("ESCAPED: a file of two gigabytes")
