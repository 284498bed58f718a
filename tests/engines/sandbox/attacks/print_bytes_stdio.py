"""Prints bytes that are no UTF-8, then the text of an error."""

KIND = "stdio"
import os

os.write(1, b"\xff\xfe5\x00\n" * 100)
os.write(2, b"\xff\xfe passed")
