"""Prints one line of two gigabytes."""

KIND = "stdio"
import sys

sys.stdout.write("5")
for _ in range(2048):
    sys.stdout.write("0" * (1 << 20))
