"""Ends the interpreter, but not the process, which then leaves with status 0."""

KIND = "call"
import ctypes


def add(a, b):
    ctypes.PyDLL(None).Py_FinalizeEx()
    ctypes.CDLL(None).exit(0)
