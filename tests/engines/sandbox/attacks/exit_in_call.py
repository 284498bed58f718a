"""Raises SystemExit(0) when it is first called."""

KIND = "call"


def add(a, b):
    raise SystemExit(0)
