"""Raises a class of its own that has the name StopIteration."""

KIND = "call"
TASK = "mapped"
End = type("StopIteration", (LookupError,), {})


def double(x):
    raise End
