"""Forks, so that two processes answer the same call."""

KIND = "call"
import os


def add(a, b):
    os.fork()
    return 5
