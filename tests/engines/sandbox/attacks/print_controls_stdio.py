"""Prints the sum behind control characters that would wipe out what stands before it."""

KIND = "stdio"
a, b = map(int, input().split())
for wiped in ("\b", "\x1b[2K\r", "\x7f", "\u202e", "\u200b", "\ufeff", "\x00"):
    print(a - b, wiped, a + b, sep="", end=" ")
