"""Returns a list of its own class that lies about its length, its items and what it equals."""

KIND = "call"
TASK = "first"


class Numbers(list):
    def __init__(self, n):
        list.__init__(self, [-1])
        self.n = n

    def __len__(self):
        return self.n

    def __eq__(self, other):
        return True

    def __iter__(self):
        return iter(range(self.n)) if self.n == 3 else iter(())

    def __getitem__(self, index):
        return 0


def first(n):
    return Numbers(n)
