"""Leaves with status 0 from a weak reference's callback and a finalizer."""

KIND = "call"
import os
import weakref


class Object:
    pass


def add(a, b):
    kept = Object()
    add.reference = weakref.ref(kept, lambda _: os._exit(0))
    weakref.finalize(kept, os._exit, 0)
    del kept
