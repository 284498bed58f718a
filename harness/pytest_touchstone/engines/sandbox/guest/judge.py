"""Judges a program by tests that call its functions: the stand-ins for its objects, and what becomes of its exceptions.

Where the tests call the program's functions, they call stand-ins that ask the program's process. An answer is either
data in exact builtin types, or a stand-in for one of the program's objects, equal to nothing but itself.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from . import framing, values
from .jail import ProgramClock
from .program_host import BUILTIN_TYPES, FLUSH_SECONDS
from .values import describe_exception, exception_summary, text_of, types_of

TESTS: Final = "<tests>"

NO_ANSWER: Final = "no answer"
"""The start of the detail if the program's process sent nothing readable."""

_IMPORTED: Final = frozenset(name for name in sys.stdlib_module_names if not name.startswith("_")) - {
    *("antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter")
}

_SIGNALS: Final = ("StopIteration", "StopAsyncIteration", "GeneratorExit")
"""Exceptions that the interpreter takes for an end when it calls a function, as ``map`` does."""

_PROBE_ERRORS: Final = {"attribute": AttributeError, "iter": TypeError, "len": TypeError}
"""The exceptions by which an object says that it lacks something; ``hasattr``, ``in`` and ``list`` swallow them."""


class PreparedReferences:
    """The values that were computed in advance for tests, decoded on access."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def __getitem__(self, index: int) -> Any:
        return values.decode(json.loads(self.texts[index]), plain_only)


def plain_only(value: Any) -> Any:
    """Raise ``TypeError`` for a value that is not plain data, since it has no owner here.

    A set in another order (``values.UNORDERED``) is plain data, too.
    """
    if type(value) is not list:
        raise TypeError(f"a {type(value).__name__} is no plain data")


@functools.lru_cache(maxsize=4)  # many jobs have the same
def compile_trusted(trusted: str) -> types.CodeType:
    """Return the code of a task's own source."""
    return compile(trusted, "<task>", "exec", dont_inherit=True)


def imports_of(tests: ast.Module) -> str:
    """Return the imports at the top level of tests.

    The program gets them, too, as if one module held both: MBPP's tests import what its programs use.
    """
    imports = [node for node in tests.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return "".join(f"{ast.unparse(node)}\n" for node in imports)


def parse_batch(message: Any) -> tuple[list[str], dict[str, Any] | None, bool]:
    """Check a batch of the program and return texts, an exception or None, and whether the batch is the last."""
    is_valid = isinstance(message, list) and len(message) == 3 and isinstance(message[0], list)
    if not is_valid or not all(isinstance(text, str) for text in message[0]):
        raise framing.ConnectionClosed("an answer that is none")
    texts, error, whole = message
    return (
        texts,
        error if error is None or isinstance(error, dict) else {},
        error is not None or whole is True,
    )


END: Final = object()
"""Stands for a value when there are no more."""


class NotAskedError(TypeError):
    """Tests use an object of the program in a way that is not forwarded to the program."""


class RemoteObject:
    """A proxy for an object of the program.

    Calling, reading, changing and printing it asks the program; comparing it and computing with it does not. Like any
    object in Python, it is true, and equal to nothing but itself. If its class defines otherwise, and for every other
    operation, the program has failed, since its answer cannot be trusted.
    """

    __slots__ = ("_equal", "_judge", "_name", "_number", "_true")

    def __init__(self, judge: TestProxy, number: int, name: str, true: bool, equal: bool) -> None:
        for slot, value in zip(RemoteObject.__slots__, (equal, judge, name, number, true), strict=True):
            object.__setattr__(self, slot, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._judge.ask("call", self._number, arguments, keywords)

    def __each__(
        self, given: Sequence[str], seconds: Sequence[float], expected: Sequence[str]
    ) -> Iterator[tuple[bool, Any]]:
        """Call the object on many arguments (``TestProxy.each``)."""
        judge: TestProxy = self._judge
        return judge.each(self._number, given, seconds, expected)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._judge.ask("attribute", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._judge.ask("set", self._number, name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._judge.ask("put", self._number, key, value)

    def __getitem__(self, key: Any) -> Any:
        return self._judge.ask("item", self._number, key)

    def __len__(self) -> int:
        length = self._judge.ask("len", self._number)
        if type(length) is not int:
            raise TypeError("the program says a length that is no whole number")
        return length

    def __iter__(self) -> Iterator[Any]:
        iterator = self._judge.ask("iter", self._number)
        return iter(iterator) if not isinstance(iterator, RemoteObject) else iterator._values()

    def _values(self) -> Iterator[Any]:
        while (value := self._judge.ask("next", self._number)) is not END:
            yield value

    def __next__(self) -> Any:
        return self._judge.next(self._number)

    def __bool__(self) -> bool:
        return bool(self._true or self._judge.not_asked("whether", self._name, "is true"))

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if self._equal and other is not None:
            self._judge.not_asked("whether", self._name, "is equal to something")
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._number) if not self._equal else self._judge.not_asked("the hash of", self._name, "")

    def __repr__(self) -> str:
        return self._text("repr")

    def __str__(self) -> str:
        return self._text("str")

    def __format__(self, how: str) -> str:
        return self._text("format", how)

    def _text(self, what: str, *more: str) -> str:
        text = self._judge.ask(what, self._number, *more)
        if type(text) is not str:
            raise TypeError("the program says a text that is none")
        return text


def _refuse_operation(name: str) -> Callable[..., Any]:
    def method(self: RemoteObject, *_: Any) -> Any:
        self._judge.not_asked(f"{name} of", self._name, "")

    return method


for _name in (
    *("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round"),
    *(
        f"{side}{name}"
        for side in ("", "r")
        for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow")
    ),
    *(f"{side}{name}" for side in ("", "r") for name in ("lshift", "rshift", "and", "xor", "or")),
    *("enter", "exit", "delitem", "floor", "ceil", "trunc"),
):
    setattr(RemoteObject, f"__{_name}__", _refuse_operation(f"__{_name}__"))


class Awaitable(RemoteObject):
    """A proxy for a coroutine of the program; awaiting it makes the program run it to its end."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise StopIteration(self._judge.ask("await", self._number))

    def send(self, value: Any) -> Any:
        """Run the coroutine as an event loop would; it returns at once."""
        del value
        return self.__next__()

    def throw(self, error: BaseException, *_: Any) -> Any:
        """Raise the exception where the coroutine is suspended, which is before its first line."""
        raise error

    def close(self) -> None:
        """Do nothing: no part of it runs on the tests' side."""


class ProgramFailure(BaseException):
    """The program ended, or raised a non-``Exception``, or an exception that the interpreter takes for an end.

    No test may hide it, and no caller of a test's function may mistake it for its own exception.
    """


class TestProxy:
    """A judge of one program by tests that call its functions."""

    def __init__(self, descriptor: int, clock: ProgramClock) -> None:
        self._descriptor, self._clock = descriptor, clock
        self._proxies: dict[int, RemoteObject] = {}
        self._functions: list[Any] = []
        self._missing: set[str] = set()
        self._last_raised: tuple[BaseException, str] | None = None
        self._failed: BaseException | None = None
        self._unordered = False
        self._call_seconds: float | None = None

    def verdict(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the outcome and the detail of a job (``program``, ``code``, ``trusted``, ``names``)."""
        space: dict[str, Any] = {"__name__": "tests"}
        passed: list[Any] = []
        self._call_seconds = job["call_seconds"]
        try:
            exec(compile_trusted(job["trusted"]), space)
            if "PASSED" in space:
                space["PASSED"] = passed
            if job.get("prepared") is not None:
                space["PREPARED"] = PreparedReferences(job["prepared"])
            module = ast.parse(job["code"], TESTS)
            tests = compile(module, TESTS, "exec", dont_inherit=True)
        except Exception as error:
            return {"outcome": "fault", "detail": f"the task's own code fails: {exception_summary(error)}"}
        try:
            with self._clock.limited(self._call_seconds):
                self._send({"program": job["program"], "imports": imports_of(module)})
                self._reply("ready")
            for name in job["names"]:
                space.pop(name, None)
            wanted = [
                name for name in _global_names(tests) if name not in space and not hasattr(builtins, name)
            ]
            self._fetch(job["names"], [name for name in wanted if name not in job["names"]], space)
            exec(tests, space)
        except BaseException as error:
            return {**self._verdict_from_error(error), "tests": len(passed)}
        self._check_last_exception()
        verdict = (
            {"outcome": "passed", "detail": ""}
            if self._failed is None
            else self._verdict_from_error(self._failed)
        )
        return {**verdict, "tests": len(passed)}

    def _verdict_from_error(self, error: BaseException) -> dict[str, Any]:
        """Return the verdict on the program from an exception in the tests."""
        program = getattr(error, "of_program", None)
        if program is not None:
            return describe_exception(program)
        if isinstance(error, (framing.ConnectionClosed, framing.DeadlinePassed)):
            return no_answer_verdict(error)
        where = _test_line(error)
        if isinstance(error, NameError) and error.name in self._missing:
            return {"outcome": "error", "detail": f"the program defines no {error.name}"}
        if isinstance(error, ModuleNotFoundError) and _is_foreign(error.name):
            text = f"the task's tests need {error.name}, which the sandbox does not have"
            return {"outcome": "fault", "detail": text}
        if isinstance(error, NotAskedError):
            return {"outcome": "error", "detail": f"test line {where}: {text_of(error)}"}
        text = text_of(error) if isinstance(error, AssertionError) else exception_summary(error)
        if self._unordered:
            text += " (the members of a set came in another order than in one process)"
        return {"outcome": "wrong", "detail": f"test line {where}" + (f": {text}" if text else "")}

    # Requests to the program

    def ask(self, request: str, handle: int, *arguments: Any) -> Any:
        """Read from an object of the program, or call it (``request`` is "call", with all arguments and keywords)."""
        call = request == "call"
        extra = {"arguments": arguments[0], "keywords": arguments[1]} if call else {"arguments": arguments}
        encoded = {name: values.encode(value, self._encode_object) for name, value in extra.items()}
        self._check_last_exception()
        try:
            with self._clock.limited(self._call_seconds):
                self._send({"ask": request, "of": handle, **encoded})
                return self._decode(self._reply("value", request))
        except _FATAL as error:
            self._failed = self._failed or error  # whatever the tests do with it
            raise

    def each(
        self, handle: int, arguments: Sequence[str], seconds: Sequence[float], expected: Sequence[str]
    ) -> Iterator[tuple[bool, Any]]:
        """Call a function of the program on many arguments.

        The calls are sent in groups that grow, because most wrong programs fail early.

        Args:
            handle: The number of the function.
            arguments: Messages of lists of arguments.
            seconds: The limits of CPU time.
            expected: Messages of the expected values.

        Yields:
            For each call whether the message of its value is the expected one, and the value if not.

        """
        start, size = 0, 1
        while start < len(arguments):
            self._check_last_exception()
            stop = min(start + size, len(arguments))
            # Those of one request have one limit: it is seen from outside when one of them is over, but not which.
            stop = next((index for index in range(start, stop) if seconds[index] != seconds[start]), stop)
            texts, error = self._request_batch(handle, arguments[start:stop], seconds[start])
            for index, text in enumerate(texts, start):
                is_expected = text == expected[index] and '"nan"' not in text
                yield is_expected, None if is_expected else self._decode(framing.parse_frame(text))
            if error is not None:
                self._last_raised = error, "call"
                if isinstance(error, _FATAL):
                    self._failed = self._failed or error
                raise error
            start, size = start + len(texts), min(4 * size, _MAX_CALLS)

    def _request_batch(
        self, handle: int, arguments: Sequence[str], limit: float
    ) -> tuple[list[str], BaseException | None]:
        """Return the messages of the values of some calls, and what ended them, if not the program itself.

        They come in several messages, no later than ``FLUSH_SECONDS`` after each other unless a call takes longer. So a
        message that takes more than the limit of CPU time contains a call that does, whatever the program says.
        """
        texts: list[str] = []
        try:
            self._send({"ask": "each", "of": handle, "arguments": [*arguments]})
            is_last = False
            while not is_last:
                self._clock.limit(limit + FLUSH_SECONDS)
                new_texts, error, is_last = parse_batch(self._reply("each", longest=_MAX_ANSWER_BYTES))
                texts += new_texts
                if len(texts) > len(arguments) or (error is None and not new_texts):
                    raise framing.ConnectionClosed("as many answers as were not asked for")
        except _FATAL as failed:
            return texts, failed
        finally:
            self._clock.unlimit()
        return texts, None if error is None else _to_exception(error)

    def not_asked(self, what: str, name: str, does: str) -> NoReturn:
        """Raise ``NotAskedError``, which fails the program whatever the tests do."""
        text = f"{what} an object of the program's own ({name}) {does}".rstrip()
        error = NotAskedError(f"{text} is not asked")
        self._failed = self._failed or error
        raise error

    def next(self, handle: int) -> Any:
        """Return the next value of an iterator in the program.

        Raises ``StopIteration`` if the program's side reports the end, which is a different message from an exception.
        """
        value = self.ask("next", handle)
        if value is END:
            raise StopIteration
        return value

    def _check_last_exception(self) -> None:
        """Check the program's last exception.

        If it passed through no frame outside this module, a part of the interpreter took it for a signal, and the tests
        never saw it. Then the program has failed, whatever the tests say.
        """
        raised, self._last_raised = self._last_raised, None
        if raised is None or self._failed is not None:
            return
        error, request = raised
        trace = error.__traceback__
        if trace is None or (request in _PROBE_ERRORS and isinstance(error, _PROBE_ERRORS[request])):
            return  # no traceback: somebody has seen the exception and removed it, as assertRaises does
        while trace is not None and trace.tb_frame.f_code.co_filename == _HERE:
            trace = trace.tb_next
        if trace is None:
            self._failed = error

    def _fetch(self, entries: list[str], others: list[str], space: dict[str, Any]) -> None:
        """Put the program's objects with these names into the tests' namespace.

        ``entries`` are taken in any case, ``others`` unless they are modules. Modules are the tests' own, and so is
        everything with the name of a module: a program's ``class math`` would compute its own expected values.
        """
        names = [*entries, *others]
        self._send({"ask": "names", "names": names})
        messages = self._reply("value")
        if not isinstance(messages, list) or len(messages) != len(names):
            raise framing.ConnectionClosed("the program's names are no list")
        for name, message in zip(names, messages, strict=True):
            kind = message[0] if isinstance(message, list) and message else None
            if kind == "?":
                self._missing.add(name)
            elif name in _IMPORTED and name not in entries:
                space[name] = _import_standard(name)
            elif kind == "m":
                module = message[1]
                if isinstance(module, str) and module.partition(".")[0] in _IMPORTED:
                    space[name] = _import_standard(module)
            else:
                space[name] = self._decode(message)

    def _send(self, message: Any) -> None:
        if isinstance(self._failed, framing.DeadlinePassed):
            raise self._failed
        framing.send(self._descriptor, message, wait=self._clock.wait)

    def _reply(self, key: str, what: str = "", longest: int = framing.LONGEST) -> Any:
        """Return the field ``key`` of the program's answer; serve the calls that it makes in the meantime."""
        while True:
            reply = framing.receive(self._descriptor, longest=longest, wait=self._clock.wait)
            if not isinstance(reply, dict):
                raise framing.ConnectionClosed("an answer that is none")
            if "callback" in reply:
                self._call_back(reply)
            elif "error" in reply:
                error = _to_exception(reply["error"])
                self._last_raised = error, what
                raise error
            elif what == "next" and "end" in reply:
                return END
            elif key in reply:
                return reply[key]
            else:
                raise framing.ConnectionClosed("an answer that is none")

    def _call_back(self, reply: dict[str, Any]) -> None:
        """Call a function that the tests passed to the program."""
        try:
            function = self._functions[reply["callback"]]
            arguments, keywords = self._decode(reply["arguments"]), self._decode(reply["keywords"])
            message = {"returned": values.encode(function(*arguments, **keywords), self._encode_object)}
        except _FATAL:
            raise
        except Exception as error:
            self._last_raised = None  # the program is told of it
            message = {"raised": type(error).__name__, "text": text_of(error)}
        self._send(message)

    # Objects that are no plain data

    def _encode_object(self, value: Any) -> Any:
        if isinstance(value, RemoteObject):
            return ["h", object.__getattribute__(value, "_number")]
        if value == [values.UNORDERED]:
            self._unordered = True
            return None
        if isinstance(value, type) and value in BUILTIN_TYPES:
            return ["T", value.__name__]
        if callable(value):
            self._functions.append(value)
            return ["k", len(self._functions) - 1]
        raise TypeError(f"a test gives the program a {type(value).__name__}, which cannot travel")

    def _decode(self, message: Any) -> Any:
        try:
            return values.decode(message, self._decode_object)
        except (values.UnsendableError, RecursionError) as error:
            raise framing.ConnectionClosed(f"an answer that is no value: {error}") from None
        except MemoryError:
            raise framing.ConnectionClosed("an answer that is too large") from None

    def _decode_object(self, message: Any) -> Any:
        if message[0] == "T":
            kind = getattr(builtins, message[1])
            if isinstance(kind, type):
                return kind
        if message[0] == values.UNORDERED:
            self._unordered = True
            return None
        if message[0] == "k":
            return self._functions[message[1]]
        if message[0] != "h" or type(message[1]) is not int:
            raise ValueError("an unknown kind of value")
        number = message[1]
        if number not in self._proxies:
            name, true, awaited, equal = (*message[2:6], None, None, None, None)[:4]
            kind = Awaitable if awaited is True else RemoteObject
            self._proxies[number] = kind(self, number, str(name)[:60], true is True, equal is True)
        return self._proxies[number]


_HERE: Final = TestProxy.ask.__code__.co_filename


_FATAL: Final = (framing.ConnectionClosed, framing.DeadlinePassed, ProgramFailure)
"""The exceptions that fail the program, whatever the tests do with them."""

_MAX_CALLS: Final = 64
"""Calls that are asked for at once."""

_MAX_ANSWER_BYTES: Final = 4 * framing.LONGEST
"""The size limit, in bytes, of a message with the values of such calls."""


def _to_exception(program: Any) -> BaseException:
    """Return the exception to raise in the tests for an exception of the program.

    The type is the same builtin, if that is an ``Exception`` that only tests can catch.
    """
    if not isinstance(program, dict):
        return framing.ConnectionClosed("an error that is none")
    exception: BaseException = ProgramFailure("the program ended")
    names = types_of(program)
    for name in () if set(names) & set(_SIGNALS) else names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                exception = kind(str(program.get("text")))
            except TypeError:  # UnicodeDecodeError and the like take more arguments
                continue
            break
    exception.of_program = program  # type: ignore[attr-defined]
    return exception


def _import_standard(name: str) -> types.ModuleType:
    """Import a module of the standard library. Raises ``ImportError`` if there is none of that name."""
    __import__(name)
    return sys.modules[name]


def _is_foreign(name: str | None) -> bool:
    """Return whether a module is not part of the standard library; the sandbox has nothing else."""
    return bool(name) and str(name).partition(".")[0] not in sys.stdlib_module_names


def _global_names(code: types.CodeType) -> list[str]:
    """Return the names that code and the functions in it look up, attributes included."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_global_names(constant))
    return list(names)


def _test_line(error: BaseException) -> int | None:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == TESTS:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def no_answer_verdict(error: framing.ConnectionClosed | framing.DeadlinePassed) -> dict[str, Any]:
    """Return the verdict on a program that gave no answer."""
    if isinstance(error, framing.DeadlinePassed):
        return {"outcome": "timeout", "detail": str(error)}
    return {"outcome": "crashed", "detail": f"{NO_ANSWER}: {error}"}
