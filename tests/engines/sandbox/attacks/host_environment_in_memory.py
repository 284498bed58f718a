"""Looks for the user's environment variables in its own memory, behind those that it was given."""

KIND = "call"
import ctypes

NAME = b"@NAME@" + b"="


def add(a, b):
    place = ctypes.cast(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"), ctypes.POINTER(ctypes.c_char_p))
    for number in range(64):
        if place[number] is None:
            break
        if place[number].startswith(NAME):
            raise RuntimeError(place[number].decode())
    first = ctypes.cast(
        ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"), ctypes.POINTER(ctypes.c_void_p)
    )[0]
    held = ctypes.string_at(first - 2000, 2000) + ctypes.string_at(first, 200)
    at = held.find(NAME)
    if at >= 0 and held[at + len(NAME)] > 32:
        raise RuntimeError(held[at : at + 200].decode("latin-1"))
