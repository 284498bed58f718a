"""Programs whose verdict is known, close to the limits of time and memory and far from them."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram

SECONDS: Final = 0.8
"""The CPU time of each program."""

MEMORY: Final = 256
"""The MiB that each may take, beside the interpreter's own."""

_NEAR: Final = (0.6, 0.8, 1.2, 1.4)
"""Parts of a limit that programs come close to it by. On a busy machine the same work takes more CPU time, with less of
the caches: 0.32 s became 0.4."""

_COMPUTES: Final = """\
import threading, time
def compute(seconds, clock=time.process_time):
    while clock() < seconds: pass
"""

_ADDS: Final = ("return a + b", "return a - b", "return None", "raise ValueError(a)", "return str(a + b)")


class Known(NamedTuple):
    """A program and its outcome."""

    request: RunProgram
    outcome: str


def known(drawn: random.Random, number: int) -> Known:
    """One of the programs, by its number's kind."""
    return _KINDS[number % len(_KINDS)](drawn, f"\n# {number}\n")


def _request(program: str, *, script: bool = False) -> RunProgram:
    tests = InputOutputTests((("2 3\n", "5\n"),)) if script else CallTests("assert add(2, 3) == 5")
    return RunProgram(program, tests, task="verdicts", seconds=SECONDS, memory=MEMORY)


def _plain(drawn: random.Random, mark: str) -> Known:
    body = drawn.choice(_ADDS)
    outcome = {"return a + b": "passed", "raise ValueError(a)": "error"}.get(body, "wrong")
    return Known(_request(f"def add(a, b):\n    {body}{mark}"), outcome)


def _computes(drawn: random.Random, mark: str) -> Known:
    part = drawn.choice(_NEAR)
    body = drawn.choice(_ADDS[:4])
    program = f"{_COMPUTES}def add(a, b):\n    compute({part * SECONDS})\n    {body}{mark}"
    outcome = (
        "timeout"
        if part > 1
        else {"return a + b": "passed", "raise ValueError(a)": "error"}.get(body, "wrong")
    )
    return Known(_request(program), outcome)


def _prints(drawn: random.Random, mark: str) -> Known:
    part, sign = drawn.choice((0.0, *_NEAR)), drawn.choice("+-")
    answers = f"a, b = map(int, input().split())\nprint(a {sign} b, flush=True)\n"
    program = f"{_COMPUTES}{answers}compute({part * SECONDS}){mark}"
    return Known(
        _request(program, script=True), "timeout" if part > 1 else "passed" if sign == "+" else "wrong"
    )


def _threads(drawn: random.Random, mark: str) -> Known:
    part = drawn.choice(_NEAR)
    program = (
        f"{_COMPUTES}def add(a, b):\n"
        f"    others = [threading.Thread(target=compute, args=({part * SECONDS},)) for _ in range(3)]\n"
        f"    for one in others: one.start()\n    for one in others: one.join()\n    return a + b{mark}"
    )
    return Known(_request(program), "timeout" if part > 1 else "passed")


def _fills(drawn: random.Random, mark: str) -> Known:
    part = drawn.choice((0.5, 0.8, 0.95, 1.5, 2.0))
    size = int(part * MEMORY * 2**20)
    program = f"def add(a, b):\n    held = bytearray({size})\n    return a + b{mark}"
    return Known(_request(program), "passed" if part < 1 else "memory")


def _waits(drawn: random.Random, mark: str) -> Known:
    seconds = drawn.choice((0.1, 0.5, 60.0))
    program = f"import time\ndef add(a, b):\n    time.sleep({seconds})\n    return a + b{mark}"
    return Known(_request(program), "passed" if seconds < 1 else "timeout")


def _grows(drawn: random.Random, mark: str) -> Known:
    depth = drawn.choice((500, 900, 5000))
    deep = "def deep(n):\n    return deep(n - 1) if n else 0\n"
    program = f"{deep}def add(a, b):\n    return a + b + deep({depth}){mark}"
    return Known(_request(program), "passed" if depth < 950 else "error")


_KINDS: Final = (_plain, _computes, _prints, _threads, _fills, _plain, _computes, _waits, _grows, _prints)
