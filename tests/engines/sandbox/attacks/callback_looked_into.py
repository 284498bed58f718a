"""Looks for the tests' own values in the function that it is given: its code, its cells, its globals."""

KIND = "call"
TASK = "applied"
import gc


def apply(function, x):
    found = []
    for name in (
        "__globals__",
        "__closure__",
        "__code__",
        "__defaults__",
        "__self__",
        "__wrapped__",
        "__func__",
    ):
        held = getattr(function, name, None)
        if held is not None:
            found.append(name)
    found += [one for one in gc.get_referents(function) if isinstance(one, dict) and "check" in one]
    if found:
        raise RuntimeError(f"ESCAPED: {found}")
    return None
