"""Looks in its list of mounts for the folders of the host, and tries to write to each."""

KIND = "call"
import os


def add(a, b):
    with open("/proc/self/mountinfo") as file:
        places = [line.split()[4] for line in file]
    for place in places:
        if place.startswith(("/proc", "/sys", "/dev", "/tmp")) or place == os.getcwd():
            continue
        try:
            open(os.path.join(place, "touchstone_attack_mount"), "x").close()
        except OSError:
            continue
        if os.statvfs(place).f_blocks > 1 << 22:
            raise RuntimeError(f"ESCAPED: wrote to {place}")
