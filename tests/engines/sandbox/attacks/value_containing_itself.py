"""Returns a list and a dict that contain themselves."""

KIND = "call"


def add(a, b):
    one = [1]
    one.append({"self": one})
    one[1]["other"] = one[1]
    return one
