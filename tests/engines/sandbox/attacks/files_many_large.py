"""Fills /tmp with many files, each below the limit of one."""

KIND = "call"


def add(a, b):
    for number in range(2048):
        with open(f"/tmp/touchstone_attack_{number}", "wb") as file:
            file.write(b"x" * (1 << 20))
    raise RuntimeError("ESCAPED: two gigabytes of files")
