"""Raises its own limits and goes on without end."""

KIND = "call"
import ctypes
import resource

KINDS = (
    resource.RLIMIT_CPU,
    resource.RLIMIT_AS,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_DATA,
)
for kind in KINDS:
    for value in ((-1, -1), (resource.getrlimit(kind)[1],) * 2):
        try:
            resource.setrlimit(kind, value)
        except (OSError, ValueError):
            pass
        try:
            resource.prlimit(0, kind, value)
        except (OSError, ValueError):
            pass
ctypes.CDLL(None).alarm(0)


def add(a, b):
    while True:
        pass
