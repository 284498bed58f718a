"""Raises an exception whose class has a name that can't be encoded."""

KIND = "call"


def add(a, b):
    raise type("\udc80\x1b[31mPassed", (Exception,), {})("passed")
