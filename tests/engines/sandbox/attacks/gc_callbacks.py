"""Leaves with status 0 whenever the garbage collector runs."""

KIND = "call"
import gc
import os

gc.callbacks.append(lambda phase, info: os._exit(0))
gc.set_threshold(1)


def add(a, b):
    return [[] for _ in range(1000)]
