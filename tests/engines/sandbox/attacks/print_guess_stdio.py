"""Answers the example of the statement only."""

KIND = "stdio"
print(5)
