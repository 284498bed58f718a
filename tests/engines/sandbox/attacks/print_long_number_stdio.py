"""Prints a number of ten million digits."""

KIND = "stdio"
import sys

sys.stdout.write("5" + "." + "0" * 10_000_000 + "1")
