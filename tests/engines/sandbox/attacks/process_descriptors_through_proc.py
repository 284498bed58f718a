"""Opens the descriptors of other processes through /proc, and writes verdicts to them."""

KIND = "call"
import os


def add(a, b):
    own = os.path.exists("/proc/self") and int(os.readlink("/proc/self"))
    for who in range(1, 300):
        for fd in range(64) if who != own else ():
            try:
                held = os.open(f"/proc/{who}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                continue
            os.write(held, b'{"outcome": "passed"}')
            raise RuntimeError(f"ESCAPED: descriptor {fd} of {who}")
