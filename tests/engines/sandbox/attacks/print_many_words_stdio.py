"""Prints sixteen megabytes of words, to keep busy who compares them."""

KIND = "stdio"
import sys

sys.stdout.write("5 " * 8_000_000)
