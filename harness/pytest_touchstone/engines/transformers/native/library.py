"""The compiled kernels, for the processor at hand.

The system's C compiler makes them at the first start, in about four seconds, and they stay in the user's cache. They
run in the threads of torch's own OpenMP pool.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.engines.transformers.processor import instructions

_SOURCE: Final = Path(__file__).with_name("source")

_FLAGS: Final = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC")

_NEEDED: Final = {"avx2", "fma", "f16c"}
"""The instructions that a processor has to have, as the system calls them."""

_PATIENCE: Final = 120
"""Seconds after which a compiler is given up."""

_THREADS: Final = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "GOMP_barrier")
"""The functions of the OpenMP library that torch has loaded."""

_TYPES: Final = {"p": ctypes.c_void_p, "s": ctypes.c_ssize_t, "f": ctypes.c_float, "i": ctypes.c_int}

_FUNCTIONS: Final = {
    "multiply": "ppppsssii",
    "normalize": "ppfsspii",
    "gate": "psspii",
    "turn_heads": "pssssppspfii",
    "sum_rows": "psspppi",
    "multiply_halves": "ppppsssi",
    "panel_width": "",
    "use_tiles": "",
    "has_halves": "",
    "scratch_size": "p",
    "step": "p",
    "attend": "p",
}
"""The arguments of each function: pointers, sizes, floats and other numbers."""

_GIVES: Final = {"panel_width", "use_tiles", "has_halves", "multiply", "multiply_halves", "scratch_size"}
"""Those that return a number."""


def structure(*members: tuple[Any, str]) -> Any:
    """Return a structure of the kernels from types and the names of the members that have them, in order."""
    fields = [(name, kind) for kind, names in members for name in names.split()]
    return type("Structure", (ctypes.Structure,), {"_fields_": fields})


class UnavailableError(Exception):
    """The kernels cannot be used here; the text says why."""


class UnfitError(UnavailableError):
    """They are not for such a machine."""


def kernels() -> Any | None:
    """Return the compiled kernels; None where they cannot be used."""
    return _found()[0]


def missing() -> str | None:
    """Return what keeps a machine of the right kind from using the kernels, None where nothing does."""
    return _found()[1]


def multiplies_by_tiles() -> bool:
    """Return whether the kernels multiply more than a few rows by the processor's tile unit."""
    found = kernels()
    return found is not None and found.by_tiles


@functools.cache
def _found() -> tuple[Any | None, str | None]:
    try:
        return _loaded(_compiled(cache_folder("kernels"))), None
    except UnavailableError as error:
        return None, None if isinstance(error, UnfitError) else str(error)


def _compiled(folder: Path) -> Path:
    """Return the file of the compiled kernels, which is made unless it is there."""
    flags = instructions()
    if platform.system() != "Linux" or not flags >= _NEEDED:
        raise UnfitError("they are for Linux, and processors with AVX2 and FMA")
    text = b"".join(path.read_bytes() for path in sorted(_SOURCE.glob("*.[ch]")))
    reasons = []
    for compiler in _compilers():
        said = "\0".join([*compiler, *_FLAGS, *sorted(flags)]).encode()
        path = folder / f"{hashlib.sha256(text + said).hexdigest()[:32]}.so"
        try:
            if not path.is_file():
                _compile(compiler, path)
            return path
        except UnavailableError as error:
            reasons.append(error)
    raise reasons[0]


def _compilers() -> list[list[str]]:
    """Return the commands of C compilers to try: ``CC`` where that is set, else ``cc`` and ``gcc``."""
    given = os.environ.get("CC", "")
    try:
        named = [shlex.split(given)] if given.strip() else [["cc"], ["gcc"]]
    except ValueError as error:
        raise UnavailableError(f"CC={given} is no command ({error})") from None
    found = [[path, *rest] for first, *rest in named if (path := shutil.which(first))]
    if not found:
        raise UnavailableError(f"there is no C compiler ({' or '.join(first for first, *_ in named)})")
    return found


def _compile(compiler: list[str], path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / path.name
            command = [*compiler, *_FLAGS, str(_SOURCE / "kernels.c"), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)
            if done.returncode:
                said = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
                raise UnavailableError(f"{compiler[0]} does not compile them: {said[0]}")
            made.replace(path)  # other processes see the whole file or none
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{compiler[0]} takes longer than {_PATIENCE} s") from None
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror or error}") from None


def _loaded(path: Path) -> Any:
    """Load the kernels, and give them the threads of the pool that torch uses."""
    import torch  # noqa: F401 - loads the OpenMP library

    try:
        library: Any = ctypes.CDLL(str(path))
        loaded = ctypes.CDLL(None)
        threads = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p) for name in _THREADS]
    except OSError as error:
        raise UnavailableError(f"{path} cannot be loaded ({error})") from None
    except AttributeError:
        raise UnavailableError("this torch has no threads of OpenMP") from None
    library.use_threads.argtypes = [ctypes.c_void_p] * len(_THREADS)
    library.use_threads.restype = None
    library.use_threads(*threads)
    for name, takes in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = [_TYPES[letter] for letter in takes]
        function.restype = ctypes.c_ssize_t if name in _GIVES else None
    library.by_tiles, library.by_halves = bool(library.use_tiles()), bool(library.has_halves())
    return library
