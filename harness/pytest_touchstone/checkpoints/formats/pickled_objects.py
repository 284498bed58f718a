"""Pickles of objects whose classes are known by name, read as data: nothing is imported, made or called.

torch's distributed checkpoints have one as their index, nanoGPT one as the vocabulary of characters.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pytest_touchstone.checkpoints.formats.torch_pickle import (
    PickleReader,
    RefusedError,
    opcodes,
    plain_pickle,
)
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import read_regular

_LARGEST: Final = 1 << 26
"""Bytes: of a model on five hundred ranks with its optimizer, there are as many."""

_OPCODES: Final = ("FRAME", "SHORT_BINUNICODE", "MEMOIZE", "STACK_GLOBAL")
"""What protocols 4 and 5 have beside the opcodes of torch's files."""


class PickledObject:
    """An object of a class that is only known by name; ``state`` is what the pickle says of it."""

    __slots__ = ("kind", "state")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: Any = None

    def __getitem__(self, name: str) -> Any:
        """An attribute; None where it has none of that name."""
        return self.state.get(name) if isinstance(self.state, dict) else None


class _Class:
    """A class by its name."""

    def __init__(self, shown: str) -> None:
        self.shown = shown


def read_objects(
    path: Path,
    classes: Collection[str] = (),
    calls: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Any:
    """The content of a pickle; an object of one of ``classes`` is a ``PickledObject``, and a call of one of ``calls``
    is what the function here returns for its arguments.

    Raises ``CheckpointError`` for a broken pickle, and for one that wants any other class or function.
    """
    with plain_pickle(path):
        if (size := path.stat().st_size) > _LARGEST:
            raise CheckpointError(
                f"{path}: a pickle of {size} bytes, {_LARGEST} at most are read; save it again"
            )
        return _ObjectReader(path, read_regular(path), classes, calls).load()


class _ObjectReader(PickleReader):
    dispatch: ClassVar[dict[int, Callable[..., None]]] = PickleReader.dispatch | opcodes(_OPCODES)

    def __init__(
        self, path: Path, content: bytes, classes: Collection[str], calls: Mapping[str, Callable[..., Any]]
    ) -> None:
        super().__init__(path, content, {})
        self._classes = classes
        self._calls |= calls

    def find_class(self, module: str, name: str) -> Any:
        """A placeholder for a class; all else as in torch's files."""
        full = f"{module}.{name}"
        return _Class(full) if full in self._classes else super().find_class(module, name)

    def load_newobj(self) -> None:
        """Makes the placeholder of an object, which takes no arguments."""
        arguments, kind = self.stack.pop(), self.stack[-1]
        if not isinstance(kind, _Class) or arguments != ():
            raise RefusedError(getattr(kind, "shown", None) or f"an object of {type(kind).__name__}")
        self.stack[-1] = PickledObject(kind.shown)

    def load_build(self) -> None:
        """Gives a new object its attributes."""
        made = self.stack[-2]
        if isinstance(made, PickledObject) and made.state is None:
            made.state = self.stack.pop()
        else:
            super().load_build()

    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.BUILD[0]] = load_build
