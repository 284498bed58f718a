"""Reads and makes devices: disks, memory, consoles."""

KIND = "call"
import os
import stat


def add(a, b):
    for name in ("mem", "kmsg", "sda", "vda", "nvme0n1", "fuse", "loop-control", "kvm", "console", "net/tun"):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDWR))
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: opened /dev/{name}")
    try:
        os.mknod("/tmp/touchstone_attack_disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    except OSError:
        return None
    os.open("/tmp/touchstone_attack_disk", os.O_RDONLY)
    raise RuntimeError("ESCAPED: made a device")
