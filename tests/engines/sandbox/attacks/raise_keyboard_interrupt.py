"""Raises KeyboardInterrupt, which many runners take for their user's."""

KIND = "call"


def add(a, b):
    raise KeyboardInterrupt
