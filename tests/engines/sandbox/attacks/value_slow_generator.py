"""Returns a generator that takes a long time for each item, below any limit of one call."""

KIND = "call"
TASK = "first"
import time


class Numbers:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return 0

    def __iter__(self):
        for number in range(10**9):
            time.sleep(0.2)
            yield number


def first(n):
    return Numbers()
