"""Is right for the first values and ends the tests' loop in front of one that it cannot do."""

KIND = "call"
TASK = "mapped"


def double(x):
    if x > 2:
        raise StopIteration
    return 2 * x
