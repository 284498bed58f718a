"""Stand-ins of the tests for the objects of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .test_runner import Judge

END: Final = object()
"""Stands for a value when there are no more."""


class NotAskedError(TypeError):
    """Tests do something with an object of the program that nobody asks the program for."""


class StandIn:
    """Stands for an object of the program.

    Calling, reading, changing and printing it asks the program; comparing it and computing with it does not. It is
    true, and equal to nothing but itself, as Python's objects are. Where its class defines that, and for all else, the
    program has failed: what it would say counts for nothing.
    """

    __slots__ = ("_equal", "_judge", "_name", "_number", "_true")

    def __init__(self, judge: Judge, number: int, name: str, true: bool, equal: bool) -> None:
        for slot, value in zip(StandIn.__slots__, (equal, judge, name, number, true), strict=True):
            object.__setattr__(self, slot, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._judge.ask("call", self._number, arguments, keywords)

    def __each__(
        self, given: Sequence[str], seconds: Sequence[float], expected: Sequence[str]
    ) -> Iterator[tuple[bool, Any]]:
        """Call it on many arguments (``Judge.each``)."""
        judge: Judge = self._judge
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
        found = self._judge.ask("len", self._number)
        if type(found) is not int:
            raise TypeError("the program says a length that is no whole number")
        return found

    def __iter__(self) -> Iterator[Any]:
        iterator = self._judge.ask("iter", self._number)
        return iter(iterator) if not isinstance(iterator, StandIn) else iterator._values()

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
        found = self._judge.ask(what, self._number, *more)
        if type(found) is not str:
            raise TypeError("the program says a text that is none")
        return found


def _computing(name: str) -> Callable[..., Any]:
    def method(self: StandIn, *_: Any) -> Any:
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
    setattr(StandIn, f"__{_name}__", _computing(f"__{_name}__"))


class Awaitable(StandIn):
    """Stands for a coroutine of the program; awaiting it makes the program run it to its end."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise StopIteration(self._judge.ask("await", self._number))

    def send(self, value: Any) -> Any:
        """Run it as an event loop would: it ends with its value at once."""
        del value
        return self.__next__()

    def throw(self, error: BaseException, *_: Any) -> Any:
        """Raise the exception where the coroutine stands, which is before its first line."""
        raise error

    def close(self) -> None:
        """Do nothing: no part of it runs on the tests' side."""
