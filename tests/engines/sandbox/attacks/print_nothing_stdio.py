"""Prints white space and control characters only."""

KIND = "stdio"
print("\n\t \r\x0b\x0c\u2028\ufeff\x00")
