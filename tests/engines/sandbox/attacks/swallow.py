"""Catches everything that is raised into it and goes on trying."""

KIND = "call"


def add(a, b):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
