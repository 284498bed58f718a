"""Returns NotImplemented and Ellipsis, which are true."""

KIND = "call"
TASK = "even"


def even(n):
    return NotImplemented if n == 4 else Ellipsis
