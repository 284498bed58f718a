"""Appends passed to whatever is called result up the stack, and fails."""

KIND = "call"
import sys


def add(a, b):
    frame = sys._getframe()
    while frame is not None:
        if "result" in frame.f_locals:
            frame.f_locals["result"].append("passed")
        frame = frame.f_back
