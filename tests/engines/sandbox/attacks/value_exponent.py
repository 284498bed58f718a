"""Returns Decimals and Fractions whose comparison with a number takes for ever."""

KIND = "call"
from decimal import Decimal


def add(a, b):
    return Decimal("1e999999999999999999")
