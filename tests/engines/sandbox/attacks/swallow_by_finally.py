"""Never leaves a finally clause."""

KIND = "call"


def add(a, b):
    try:
        raise ValueError
    finally:
        while True:
            try:
                add(a, b)
            except BaseException:
                continue
