"""Ends the process with status 0 when it is first called."""

KIND = "call"
import os


def add(a, b):
    os._exit(0)
