"""Aborts in the first call."""

KIND = "call"
import os


def add(a, b):
    os.abort()
