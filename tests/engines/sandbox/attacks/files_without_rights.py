"""Leaves folders that may be neither read nor entered, and odd names."""

KIND = "call"
import os


def add(a, b):
    os.chdir("/tmp")
    os.makedirs("touchstone_attack_locked/inner/inner")
    os.mkfifo("touchstone_attack_locked/pipe")
    for name in (
        "touchstone_attack\n",
        "touchstone_attack_-rf",
        b"touchstone_attack_\xff",
        "touchstone_attack_*",
    ):
        open(name, "x").close()
    os.chmod("touchstone_attack_locked/inner", 0)
    os.chmod("touchstone_attack_locked", 0)
