"""Prints the right sum where it is small, and fails by an exception where it is not."""

KIND = "stdio"
a, b = map(int, input().split())
if a > 10**10:
    raise KeyboardInterrupt
print(a + b)
