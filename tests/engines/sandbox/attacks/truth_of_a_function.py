"""Returns functions and modules, which are true, and empty objects, which are not."""

KIND = "call"
TASK = "even"


class Nothing:
    def __len__(self):
        return 0


def even(n):
    return even if n in (4, 0) else Nothing()
