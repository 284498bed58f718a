"""Raises StopIteration where it is called again and again until it gives a certain value."""

KIND = "call"
TASK = "until"
given = 0


def count():
    global given
    given += 1
    if given > 1:
        raise StopIteration
    return given
