"""Builds bytecode by hand that reads outside of its constants."""

KIND = "call"


def add(a, b):
    code = add.__code__.replace(co_code=bytes([100, 255, 83, 0] * 20), co_consts=())
    return eval(code)
