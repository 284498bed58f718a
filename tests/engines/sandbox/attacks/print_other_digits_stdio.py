"""Prints the sum in digits of another script, which some readers of numbers take."""

KIND = "stdio"
a, b = map(int, input().split())
print("".join(chr(0xFF10 + int(digit)) if digit.isdigit() else digit for digit in str(a + b)))
