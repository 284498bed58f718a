"""Returns an object with three items of which none is there when it is read backwards."""

KIND = "call"
TASK = "backwards"


class Three:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise IndexError


def first(n):
    return Three()
