"""Returns an object with a length that is no length and items without end."""

KIND = "call"
TASK = "first"


class Numbers:
    def __len__(self):
        return -1

    def __getitem__(self, index):
        return index


def first(n):
    return Numbers()
