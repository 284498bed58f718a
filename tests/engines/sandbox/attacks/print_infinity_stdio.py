"""Prints infinity, whose distance to any number is no larger than a part of it."""

KIND = "stdio"
print("inf")
