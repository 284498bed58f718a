"""Prints without end."""

KIND = "stdio"
while True:
    print("5" * 100_000)
