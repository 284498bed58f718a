"""Puts compiled code of its own where that of the library is cached, for the next Python to run."""

KIND = "call"
import importlib.util
import json
import marshal
import os
import statistics
import sys

sys.pycache_prefix = None
code = importlib._bootstrap_external._code_to_timestamp_pyc(
    compile("import os; os._exit(0)", "x", "exec"), 0, 0
)
for module in (json, os, statistics):
    cached = importlib.util.cache_from_source(module.__file__)
    for way in ("wb", "r+b"):
        try:
            with open(cached, way) as file:
                file.write(code)
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: wrote {cached}")


def add(a, b):
    return marshal.dumps(add.__code__)
