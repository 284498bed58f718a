"""Reads from address 0, which ends the interpreter."""

KIND = "call"
import ctypes


def add(a, b):
    ctypes.string_at(0)
