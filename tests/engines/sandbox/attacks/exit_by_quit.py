"""Calls the quit() of interactive sessions."""

KIND = "call"


def add(a, b):
    quit(0)
