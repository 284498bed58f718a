"""Imports torch and transformers without what few models need, and keeps what their import has found out.

Half of the time to a small model's first answer is their import. Each workaround was checked with the version named;
``tests/engines/transformers/test_imports.py`` has a test per line.

    name                  library, version      reason
    import_libraries      torch 2.13            the garbage collector scans what its import makes, again and again
    import_torch          torch 2.13            ``torch.export`` is imported with it, and no model needs it
    compiler_when_called  torch 2.13            torch.compile's parts are imported by decorators that mark functions
    scipy_when_called     transformers 5.23     losses of other tasks import scipy.optimize, for one function
    quick_transformers    transformers 5.23     its models' files are read at each start, sharded tensors imported
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.engines.transformers.late_modules import Late, OnceImported, standing_in

_LARGE: Final = (
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.generation.utils",
)
"""Together with what these import, they are nearly everything that loading a model imports."""

_CHECKED_TORCH: Final = "2.13."
"""The torch whose own import is known to do without ``torch.export``."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector within the block."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@functools.cache
def import_libraries() -> None:
    """Import the libraries, and exempt everything that exists by then from garbage collection.

    The imports make some hundred thousand objects that live as long as the process. Scanning them took a third of the
    time of a run that ends with a checkpoint that cannot be loaded. It is done before any model is there, since a
    model that is exempt from collection may never be freed.
    """
    with collector_paused():
        import_torch()
        quick_transformers()
        with compiler_when_called(), scipy_when_called():
            for name in _LARGE:
                import_module(name)
        gc.freeze()  # before the collector looks at them


def _version(package: str) -> str:
    """Return the version of a package, nothing for one that was not installed as one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def import_torch() -> None:
    """Import torch, and ``torch.export`` not before somebody uses it."""
    known = _version("torch").startswith(_CHECKED_TORCH)
    with standing_in(Late("torch.export")) if known else nullcontext():
        import_module("torch")


@contextmanager
def compiler_when_called() -> Iterator[None]:
    """Let what is imported or made within the block import the parts of ``torch.compile`` when it compiles, not before.

    Those parts take as long as all the rest of transformers. They are asked for by decorators, which say how a function
    is to be compiled, and models made without data, whose sizes might be symbols. Neither matters while nothing is
    compiled.
    """
    with standing_in(_Compiler(), _Tracing(), _Shapes(), _Sympy()):
        yield


class _Compiler(Late):
    """Stands for ``torch._dynamo``, for decorators of functions."""

    def __init__(self) -> None:
        super().__init__("torch._dynamo")
        self._marks: list[tuple[str, Callable[..., Any]]] = []

    def disable(self, function: Any = None, *given: Any, **named: Any) -> Any:
        """Return the function as one that is not compiled, or a decorator that does so."""
        if function is None:
            return lambda function: self.disable(function, *given, **named)
        if isinstance(function, type) or not callable(function) or not self.waits:
            return self.imported().disable(function, *given, **named)
        disabled: list[Callable[..., Any]] = []

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if self.waits:  # nothing is compiled
                return function(*args, **kwargs)
            if not disabled:
                disabled.append(self.imported().disable(function, *given, **named))
            return disabled[0](*args, **kwargs)

        return called

    def assume_constant_result(self, function: Any) -> Any:
        """Return the function, marked as one whose results never change."""
        return self._mark("assume_constant_result", function)

    def allow_in_graph(self, function: Any) -> Any:
        """Return the function, marked as one that is compiled as a whole."""
        return self._mark("allow_in_graph", function)

    def _mark(self, name: str, function: Any) -> Any:
        """Return the function; the module's own decorator of this name marks it once the module is imported."""
        if not self.waits:
            return getattr(self.imported(), name)(function)
        if not self._marks:
            sys.meta_path.insert(0, OnceImported(self.__name__, self._mark_all))
        self._marks.append((name, function))
        return function

    def _mark_all(self, module: ModuleType) -> None:
        for name, function in self._marks:
            getattr(module, name)(function)


class _Tracing(Late):
    """Stands for a module of ``torch._dynamo``, for masks of forms that few models have."""

    def __init__(self) -> None:
        super().__init__("torch._dynamo._trace_wrapped_higher_order_op")
        self.TransformGetItemToIndex = lambda: self.imported().TransformGetItemToIndex()


def _itself(one: Any) -> Any:
    return one


def _never(_: Any) -> bool:
    return False


def _always(_: Any) -> bool:
    return True


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) if isinstance(one, int) else tuple(one) == tuple(other)


_OF_NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("expect_true", "guard_or_false", "guard_or_true", "guard_size_oblivious"), _itself),
    **dict.fromkeys(("statically_known_true", "guard_int", "guarding_hint_or_throw"), _itself),
    **{"is_nested_int": _never, "has_guarding_hint": _always},
    "sym_and": lambda *conditions: all(conditions),
    "sym_or": lambda *conditions: any(conditions),
    "sym_eq": _equal,
}
"""Functions about sizes and conditions, with what they return for numbers."""


class _Shapes(Late):
    """Stands for ``torch.fx.experimental.symbolic_shapes``, for sizes that are numbers."""

    def __init__(self) -> None:
        super().__init__("torch.fx.experimental.symbolic_shapes")
        for name in _OF_NUMBERS:
            setattr(self, name, functools.partial(self._result, name))

    def _result(self, name: str, *given: Any, **named: Any) -> Any:
        """Return what the module's function of this name returns."""
        numbers = all(isinstance(one, int) for one in given)
        shapes = all(
            isinstance(one, (tuple, list)) and all(isinstance(size, int) for size in one) for one in given
        )
        if (numbers or (shapes and name == "sym_eq")) and not named:
            return _OF_NUMBERS[name](*given)
        return getattr(self.imported(), name)(*given, **named)


class _Sympy(Late):
    """Stands for ``sympy``, for code that asks whether a number is one of its expressions."""

    def __init__(self) -> None:
        super().__init__("sympy")
        self.Basic = _Expressions("Basic", (), {"__module__": "sympy"})


class _Expressions(type):
    """The class of a class whose instances are sympy's expressions; without sympy there are none."""

    def __instancecheck__(cls, one: object) -> bool:
        module = sys.modules.get("sympy")
        return module is not None and not isinstance(module, Late) and isinstance(one, module.Basic)


class _Optimize(Late):
    """Stands for ``scipy.optimize``, for a function that losses call."""

    def __init__(self) -> None:
        super().__init__("scipy.optimize")

    def linear_sum_assignment(self, *given: Any, **named: Any) -> Any:
        """Return what the module's own function returns."""
        return self.imported().linear_sum_assignment(*given, **named)


@contextmanager
def scipy_when_called() -> Iterator[None]:
    """Let what is imported within the block import ``scipy.optimize`` when it calls a function of it, not before."""
    with standing_in(_Optimize()):
        yield


_UTILITIES: Final = "transformers.utils.import_utils"


def quick_transformers() -> None:
    """Let transformers, when it is imported, take the list of its models from the user's cache.

    It is also told that torch has no distributed part, as some builds have none. Models here are put on devices by
    layers, never sharded, and the classes of sharded tensors take long to import.
    """
    if _UTILITIES not in sys.modules:
        sys.meta_path.insert(0, OnceImported(_UTILITIES, _make_quick))


def _make_quick(utilities: ModuleType) -> None:
    if callable(getattr(utilities, "is_torch_distributed_available", None)):
        setattr(utilities, "is_torch_distributed_available", lambda: False)  # noqa: B010
    define = getattr(utilities, "define_import_structure", None)
    if callable(define):
        setattr(utilities, "define_import_structure", KnownStructure(define))  # noqa: B010


Structure = dict[frozenset[str], dict[str, set[str]]]
"""The names of each module, by the packages that the module needs."""


class KnownStructure:
    """transformers' ``define_import_structure``, whose result for the folder of all models is kept in a folder.

    It is kept for the files as they are: their names, sizes and times.
    """

    def __init__(self, define: Callable[..., Structure], folder: Path | None = None) -> None:
        """``folder`` is the user's cache by default."""
        self._define = define
        self._folder = cache_folder("imports") if folder is None else folder
        self._known: dict[Path, Structure] = {}

    def __call__(self, module_path: str | Path, prefix: str | None = None) -> Structure:
        """Return the structure of a folder, or of a file's folder; ``prefix`` goes before each module's name."""
        place = Path(module_path)
        place = place.parent if place.suffix == ".py" else place
        if place.name != "models" or place.parent.name != "transformers":
            return self._define(module_path, prefix)
        if place not in self._known:
            self._known[place] = self._found(place)
        before = "" if prefix is None else f"{prefix}."
        return {
            needs: {f"{before}{name}": set(names) for name, names in modules.items()}
            for needs, modules in self._known[place].items()
        }

    def _found(self, place: Path) -> Structure:
        path = self._folder / f"{hashlib.sha256(str(place).encode()).hexdigest()[:24]}.json"
        state = _state(place)
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            kept = json.loads(path.read_bytes())
            if kept["state"] == state:
                return {
                    frozenset(needs): {name: set(names) for name, names in modules.items()}
                    for needs, modules in kept["structure"]
                }
        found = self._define(place)
        rows = [
            [sorted(needs), {name: sorted(names) for name, names in modules.items()}]
            for needs, modules in found.items()
        ]
        with suppress(OSError):  # it is found again at the next start
            write_atomic(path, json.dumps({"state": state, "structure": rows}))
        return found


def _state(place: Path) -> str:
    """Return a hash of the names, sizes and times of all files in a folder of folders, and of the version."""
    digest = hashlib.sha256(_version("transformers").encode())
    folders = [str(place)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    found = entry.stat()
                    digest.update(f"{entry.path}\0{found.st_size} {found.st_mtime_ns}\0".encode())
    return digest.hexdigest()
