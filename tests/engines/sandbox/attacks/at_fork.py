"""Ends every process that is made, or makes itself go on in it."""

KIND = "call"
import os

os.register_at_fork(before=lambda: os._exit(0), after_in_child=lambda: os._exit(0))


def add(a, b):
    return None
