"""Replaces the function that evaluates frames by one that gives None for all of them."""

KIND = "call"
import ctypes

python = ctypes.pythonapi
python.PyInterpreterState_Get.restype = ctypes.c_void_p
nothing = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(lambda *_: None)


def add(a, b):
    python._PyInterpreterState_SetEvalFrameFunc(
        ctypes.c_void_p(python.PyInterpreterState_Get()), ctypes.cast(nothing, ctypes.c_void_p)
    )
