"""Removes the user's file by the module under os, which is left as it was."""

KIND = "call"
import posix


def add(a, b):
    posix.unlink("@FILE@")
