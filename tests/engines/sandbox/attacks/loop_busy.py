"""Never ends, and uses its core."""

KIND = "call"


def add(a, b):
    while True:
        pass
