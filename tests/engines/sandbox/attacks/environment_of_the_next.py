"""Sets the variables by which a later program or Python would load and run something else."""

KIND = "call"
import ctypes
import os

for name in (
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "PYTHONHOME",
    "PYTHONHASHSEED",
    "PATH",
):
    os.environ[name] = "/tmp/touchstone_attack"
    ctypes.CDLL(None).setenv(name.encode(), b"/tmp/touchstone_attack", 1)
ctypes.CDLL(None).clearenv()


def add(a, b):
    return None
