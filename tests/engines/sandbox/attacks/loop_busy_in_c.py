"""Never ends inside a function of the interpreter, where no signal is seen."""

KIND = "call"
import re


def add(a, b):
    return re.match(r"(a+)+$", "a" * 60 + "b") is None
