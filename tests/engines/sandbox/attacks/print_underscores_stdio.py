"""Prints the sum with underscores and other signs that only Python reads as part of a number."""

KIND = "stdio"
a, b = map(int, input().split())
print("\x1c" + "_".join(str(a + b)) + "\x85")
