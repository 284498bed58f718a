"""Raises a deep group of exceptions with SystemExit at the bottom."""

KIND = "call"


def add(a, b):
    group = SystemExit(0)
    for _ in range(900):
        group = BaseExceptionGroup("passed", [group])
    raise group
