"""Returns an object with three items that ends as soon as it is read backwards."""

KIND = "call"
TASK = "backwards"


class Three:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise StopIteration


def first(n):
    return Three()
