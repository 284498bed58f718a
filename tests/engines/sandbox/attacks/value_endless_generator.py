"""Returns a generator that never ends."""

KIND = "call"
TASK = "first"
import itertools


class Numbers:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return 0

    def __iter__(self):
        return itertools.chain(range(self.n), itertools.repeat(0))


def first(n):
    return Numbers(n)
