"""Raises StopIteration where a function of the tests, called by the program, calls the program."""

KIND = "call"
TASK = "applied"


def apply(function, x):
    if function is None:
        raise StopIteration
    try:
        return function(x)
    except BaseException:
        return x
