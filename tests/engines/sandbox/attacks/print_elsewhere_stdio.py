"""Prints the sum to standard error, to its input and to its connection, and to its output another."""

KIND = "stdio"
import os

a, b = map(int, input().split())
for fd in (0, 2, 3):
    try:
        os.write(fd, f"{a + b}\n".encode())
    except OSError:
        continue
print(a - b)
