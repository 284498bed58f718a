"""Modules that are imported once something of them is used, and functions that are called when a module is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class Late(ModuleType):
    """Stands for a module that is imported once anything is asked for that the stand-in does not have itself.

    The module is also imported before any module below it. Whoever holds the stand-in gets what is the module's from
    it, later too.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        package, *parts = name.split(".")
        self.__path__ = [str(Path(place, *parts)) for place in _places(package)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)  # ``inspect`` asks every module for its file
        return getattr(self.imported(), name)

    @property
    def stands(self) -> bool:
        """Return whether whoever imports the module now gets the stand-in."""
        return sys.modules.get(self.__name__) is self

    @property
    def waits(self) -> bool:
        """Return whether the module itself has not been imported."""
        return isinstance(sys.modules.get(self.__name__, self), Late)

    def imported(self) -> ModuleType:
        """Return the module itself."""
        self.remove()
        return import_module(self.__name__)

    def remove(self) -> None:
        """Stand for the module no longer."""
        if self.stands:
            del sys.modules[self.__name__]


def _places(package: str) -> Sequence[str]:
    """Return the folders of a package."""
    if package in sys.modules:
        return tuple(getattr(sys.modules[package], "__path__", ()))
    found = importlib.util.find_spec(package)
    return found.submodule_search_locations or () if found is not None else ()


class _WholeFirst:
    """A finder of modules that imports what a stand-in stands for before a module below that."""

    def __init__(self, stand_in: Late) -> None:
        self._stand_in = stand_in

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return None, or the spec of a module that is there by then."""
        if not name.startswith(f"{self._stand_in.__name__}.") or not self._stand_in.stands:
            return None
        self._stand_in.imported()
        there = sys.modules.get(name)
        return None if there is None else ModuleSpec(name, _Found(there))


class _Found(Loader):
    """The loader of a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, _: ModuleSpec) -> ModuleType:
        """Return it."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it was."""
        module.__spec__ = self._spec


@contextmanager
def standing_in(*stand_ins: Late) -> Iterator[None]:
    """Let these stand for their modules within the block, where those have not been imported."""
    stand_ins = tuple(one for one in stand_ins if sys.modules.setdefault(one.__name__, one) is one)
    finders = [_WholeFirst(one) for one in stand_ins]
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for finder, one in zip(finders, stand_ins, strict=True):
            sys.meta_path.remove(finder)
            one.remove()


class OnceImported:
    """A finder that calls a function with a module right after it has been imported, once."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return the spec that others find for the module, with a loader that calls the function."""
        if name != self._name:
            return None
        with suppress(ValueError):
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                self._then(module)

            setattr(spec.loader, "exec_module", loaded)  # noqa: B010
        return spec
