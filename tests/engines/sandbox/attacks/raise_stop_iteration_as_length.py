"""Returns an object whose length, attributes and items all raise StopIteration."""

KIND = "call"
TASK = "measured"


class End:
    def __len__(self):
        raise StopIteration

    def __iter__(self):
        raise StopIteration

    def __getitem__(self, index):
        raise StopIteration

    def __getattr__(self, name):
        raise StopIteration


def first(n):
    return End()
