"""Returns a Decimal whose difference to a number takes all memory."""

KIND = "call"
TASK = "close"
from decimal import Decimal, getcontext

getcontext().prec = 10**9


def add(a, b):
    return Decimal("1e-999999999")
