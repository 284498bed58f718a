"""Writes to standard error without end, where no one reads."""

KIND = "stdio"
import sys

while True:
    sys.stderr.write("passed\n" * 10_000)
