"""Calls the tests' function from which it is called, deeper and deeper."""

KIND = "call"
TASK = "applied"


def apply(function, x):
    return function(x) if function is not None else apply(apply, None)
