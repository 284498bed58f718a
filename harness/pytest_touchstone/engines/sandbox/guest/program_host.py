"""The program's process: runs the program and answers calls of its functions, one at a time.

Nothing here is to be trusted once the program has run: it shares the process. Only data leaves it, which the
tests' side reads with care (``values``).
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import io
import json
import operator
import os
import random
import sys
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from . import framing, values

PROGRAM: Final = "<program>"
"""The file name under which the program's lines appear."""

MODULE: Final = "program"

_RESERVE: Final = 2**23
"""Bytes of address space that are freed when memory is short, so that the end of the program can be reported."""

_MOST_TEXT: Final = framing.LONGEST // 8
"""Characters of several values in one message; beyond it, the next ones get a message of their own."""

FLUSH_SECONDS: Final = 0.02
"""Seconds after which values are sent that are there, before the rest of those asked for."""

BUILTIN_TYPES: Final = frozenset(kind for kind in vars(builtins).values() if isinstance(kind, type))
"""Types that are sent by name."""


def _await_value(value: Any) -> Any:
    """Return the result of awaiting the value, in a new event loop."""
    import asyncio  # few programs need it

    async def main() -> Any:
        return await value

    return asyncio.run(main())


_READS: Final[dict[str, Callable[..., Any]]] = {
    "await": _await_value,
    "iter": iter,
    "len": len,
    "repr": repr,
    "str": str,
    "format": format,
    "item": lambda value, key: value[key],
    "attribute": getattr,
    "set": setattr,
    "put": operator.setitem,
}


def serve(descriptor: int) -> None:
    """Run the program that comes first and answer the requests after it, until the connection closes."""
    request = framing.receive(descriptor)
    host = _ProgramHost(descriptor)
    host.say(host.run(request["program"], MODULE, request.get("imports", "")))
    while True:
        try:
            request = framing.receive(descriptor)
        except framing.ConnectionClosed:
            return
        host.say(host.answer(request))


def run_script(descriptor: int) -> int:
    """Run the program as a script that reads and prints; return the exit code and send its exception."""
    request = framing.receive(descriptor)
    host = _ProgramHost(descriptor)
    _open_streams_by_name()
    outcome = host.run(request["program"], "__main__")
    try:
        host.end()
    except Exception as error:  # the reader may have stopped reading
        outcome = outcome if "error" in outcome else {"error": host.described(error)}
    raised = outcome.get("error")
    if raised and raised["types"][0] == "SystemExit" and raised["code"] in (None, 0):
        raised = None
    if raised:
        framing.send(descriptor, raised)
    return 1 if raised else 0


class _ProgramHost:
    """The program's module, and its objects that the tests hold handles to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._module: dict[str, Any] = {}
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._test_functions: dict[int, Any] = {}
        self._reserve: bytearray | None = bytearray(_RESERVE)

    def say(self, message: Any) -> None:
        """Send a message; replace an unreadably long one by an error."""
        try:
            framing.send(self._descriptor, message)
        except (ValueError, RecursionError, MemoryError) as error:
            framing.send(self._descriptor, {"error": self.described(error)})

    def run(self, program: str, name: str, imports: str = "") -> Any:
        """Run the program's module-level code, and then ``imports``, those of its tests."""
        module = types.ModuleType(name)
        sys.modules[name] = module  # dataclasses and pickle look it up there
        self._module = module.__dict__
        for word in ("exit", "quit"):  # what the module site would have added
            setattr(builtins, word, _sitebuiltins.Quitter(word, "end of input"))
        random.seed(0)  # forked processes inherit the same state; a verdict must not depend on luck
        try:
            exec(compile(program, PROGRAM, "exec", dont_inherit=True), self._module)
            if imports:  # even an empty text takes memory to compile, and the program may have left none
                with suppress(ImportError):  # the tests, which import the same, say what there is not
                    exec(imports, self._module)
        except BaseException as error:  # SystemExit too: it ends the program's module
            return {"error": self.described(error)}
        return {"ready": True}

    def end(self) -> None:
        """Do what an interpreter does at its end: wait for threads, call exit functions, flush streams."""
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        left = [
            stream
            for stream in self._module.values()
            if isinstance(stream, (io.TextIOWrapper, io.BufferedWriter))
        ]
        for stream in (sys.stdout, *left, sys.__stdout__):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()

    def answer(self, request: dict[str, Any]) -> Any:
        """Return the answer to one request.

        ``names`` looks up names, ``call`` calls a handle, and the others read it. The end of an iterator is not an
        exception.
        """
        try:
            if request["ask"] == "names":
                return {"value": [self._look_up(name) for name in request["names"]]}
            target = self._objects[request["of"]]
            if request["ask"] == "each":
                return {"each": self._each(target, request["arguments"])}
            arguments = self._decode(request["arguments"])
            if request["ask"] == "call":
                value = target(*arguments, **self._decode(request["keywords"]))
            elif request["ask"] == "next":
                value = next(target, self)
                if value is self:
                    return {"end": True}
            else:
                value = _READS[request["ask"]](target, *arguments)
            return {"value": values.encode(value, self._encode_object)}
        except framing.ConnectionClosed:
            raise
        except BaseException as error:
            return {"error": self.described(error)}

    def _each(self, target: Any, arguments: list[str]) -> list[Any]:
        """Return the messages of the values of calls, the exception that ended them or None, and True.

        Messages that have waited for ``FLUSH_SECONDS``, or are long, are sent before the others.
        """
        texts: list[str] = []
        size, started = 0, time.perf_counter()
        for message in arguments:
            if size > _MOST_TEXT or (texts and time.perf_counter() - started > FLUSH_SECONDS):
                self.say({"each": [texts, None, False]})
                texts, size, started = [], 0, time.perf_counter()
            try:
                value = target(*self._decode(json.loads(message)))
                text = values.text(value, self._encode_object)
            except framing.ConnectionClosed:
                raise
            except BaseException as error:
                return [texts, self.described(error), True]
            texts.append(text)
            size += len(text)
        return [texts, None, True]

    def described(self, error: BaseException) -> dict[str, Any]:
        """Return an exception as data: the names of its types, the line of the program, the text."""
        self._reserve = None  # nothing may be allocated before
        line = None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == PROGRAM:
                line = trace.tb_lineno
            trace = trace.tb_next
        if isinstance(error, SyntaxError) and error.filename == PROGRAM:
            line = error.lineno
        code = getattr(error, "code", None)
        code = code[:500] if isinstance(code, str) else code
        return {
            "types": [kind.__name__ for kind in type(error).__mro__],
            "text": _safe_text(error)[: 2 * values.LONGEST],
            "line": line,
            "code": code if isinstance(code, (int, str, type(None))) else str(type(code)),
            "number": error.errno if isinstance(error, OSError) else None,
        }

    def _look_up(self, name: str) -> Any:
        if name not in self._module:
            return ["?"]
        value = self._module[name]
        if isinstance(value, types.ModuleType):
            return ["m", value.__name__]
        return values.encode(value, self._encode_object)

    def _encode_object(self, value: Any) -> Any:
        """Return the message for an object that is not plain data; an object always has the same number."""
        if type(value) is list:  # for a set in another order, which is the judge's to tell
            return None
        if isinstance(value, _TestFunction):
            return ["k", value.number]
        if isinstance(value, type) and value in BUILTIN_TYPES:
            return ["T", value.__name__]
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        kind = type(value)
        true = not hasattr(kind, "__bool__") and not hasattr(kind, "__len__")
        equal = any("__eq__" in vars(base) for base in kind.__mro__[:-1])
        awaited = hasattr(kind, "__await__") and not hasattr(kind, "__next__")
        return ["h", number, kind.__name__, true, awaited, equal]

    def _decode(self, message: Any) -> Any:
        return values.decode(message, self._decode_object)

    def _decode_object(self, message: Any) -> Any:
        if message[0] == "h":
            return self._objects[message[1]]
        if message[0] == "T":
            return getattr(builtins, message[1])
        if message[0] == values.UNORDERED:
            return None
        return self._test_functions.setdefault(message[1], _TestFunction(self, message[1]))

    def ask_back(self, number: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function of the tests that was passed to the program as an argument."""
        self.say(
            {
                "callback": number,
                "arguments": values.encode(arguments, self._encode_object),
                "keywords": values.encode(keywords, self._encode_object),
            }
        )
        while True:
            request = framing.receive(self._descriptor)
            if "returned" in request:
                return self._decode(request["returned"])
            if "raised" in request:
                raise getattr(builtins, request["raised"], Exception)(request["text"])
            self.say(self.answer(request))


class _TestFunction:
    """A function of the tests, as the program sees it."""

    def __init__(self, host: _ProgramHost, number: int) -> None:
        self._host = host
        self.number = number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._host.ask_back(self.number, arguments, keywords)


_STREAMS: Final = {
    name: number
    for number, stream in enumerate(("stdin", "stdout", "stderr"))
    for name in (f"/dev/{stream}", f"/dev/fd/{number}", f"/proc/self/fd/{number}")
}


def _open_streams_by_name() -> None:
    """Let a script open its streams by their file names, which lead nowhere here: /proc is empty."""
    original_open, original_os_open = io.open, os.open

    def number(path: Any) -> int | None:
        return _STREAMS.get(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else None

    def opened(file: Any, *arguments: Any, **keywords: Any) -> Any:
        stream = number(file)
        return original_open(file if stream is None else os.dup(stream), *arguments, **keywords)

    def opened_low(path: Any, *arguments: Any, **keywords: Any) -> int:
        stream = number(path)
        return original_os_open(path, *arguments, **keywords) if stream is None else os.dup(stream)

    builtins.open = io.open = opened
    os.open = opened_low


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # the text comes from the program
        return "(no text)"


def silence() -> None:
    """Point the standard streams to /dev/null."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
