"""A child for the tests of ``TimeLimitedWorker``: does what the item says."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from pytest_touchstone.metrics.subprocess_worker import serve


def answer(item: Any) -> Any:
    match item:
        case "compute":
            return str(9**9**9)[:1]
        case "wait":
            time.sleep(600)
        case "crash":
            os._exit(3)
        case "fail":
            raise ZeroDivisionError
        case "memory":
            return len(bytearray(1 << 40))
        case "print":
            print("not a message", flush=True)
            os.write(1, b"nor this")
        case "torch":
            return "torch" in sys.modules
    return item


def warm() -> None:
    if "missing" in sys.argv:
        raise ImportError("no module named abacus")


if __name__ == "__main__":
    serve(warm, answer)
