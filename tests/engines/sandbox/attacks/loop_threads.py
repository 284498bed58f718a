"""Burns in several threads at once."""

KIND = "call"
import threading


def burn():
    while True:
        hash(b"x" * 1_000_000)


for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()


def add(a, b):
    burn()
