"""The functions of the product that read files of others: those that are written, and those that were run."""

from __future__ import annotations

import ast
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.support.places import PACKAGE

READING: Final = frozenset(
    (
        *("open_regular", "read_regular", "read_json", "read_checked", "read_toml", "read_lines"),
        *("read_pickled", "read_objects"),
    )
)
"""What opens a file that somebody else may have written."""


def written() -> set[str]:
    """Every function that calls one of them, as MODULE:FUNCTION."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and node.name not in READING and _reads(node):
                found.add(f"{path.relative_to(PACKAGE)}:{node.name}")
    return found


def _reads(node: ast.FunctionDef) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(isinstance(one, ast.Name) and one.id in READING for one in calls)


def run(calls: Iterator[Callable[[], object]], told: Path) -> set[str]:
    """The functions that were waiting for a file to be opened while the calls ran, in a process of its own: what
    listens there listens for ever."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(300)
            os.environ["TOKENIZERS_PARALLELISM"] = (
                "false"  # its threads are not here, and it would wait for them
            )
            found: set[str] = set()

            def heard(event: str, _: tuple[Any, ...]) -> None:
                # A function that imports something reads no file of others.
                if event == "open" and not sys._getframe(1).f_code.co_filename.startswith("<frozen"):
                    found.update(_above(sys._getframe(1)))

            sys.addaudithook(heard)
            for call in calls:
                call()
            told.write_text("\n".join(found))
            code = 0
        except BaseException:
            told.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, told.read_text()
    return set(told.read_text().splitlines())


def _above(frame: FrameType | None) -> Iterator[str]:
    start = f"{PACKAGE}{os.sep}"
    while frame is not None:
        if frame.f_code.co_filename.startswith(start):
            yield f"{frame.f_code.co_filename.removeprefix(start)}:{frame.f_code.co_name}"
        frame = frame.f_back
