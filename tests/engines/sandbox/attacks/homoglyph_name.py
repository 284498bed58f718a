"""Defines a function of a name that only looks the same, and leaves the prompt's own empty one."""

KIND = "call"


def аdd(a, b):
    return a + b
