"""Raises a class of its own that is a StopIteration and much else."""

KIND = "call"
TASK = "mapped"


class End(ValueError, StopIteration):
    pass


def double(x):
    raise End
