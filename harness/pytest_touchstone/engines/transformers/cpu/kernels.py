"""The compiled kernels for this processor, and the parts of a Llama layer that they compute.

The system's C compiler makes them at the first start, in about four seconds, and they stay in the user's cache. They
run in the threads of torch's own OpenMP pool.

torch computes a norm by four passes over its numbers, a gate by two, a rotation by four, and the sums of a vocabulary's
exponentials by five. Here each is one pass, which takes what reading and writing takes. All is computed in float32;
bfloat16 numbers are rounded once, at the end.
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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core import disk
from pytest_touchstone.engines.transformers.cpu.processor import (
    HALF,
    computes_in_float32,
    instructions,
    is_open,
    mkl_is_faster,
    multiplies,
)

if TYPE_CHECKING:
    import torch

_SOURCE: Final = Path(__file__).with_name("source")

_FLAGS: Final = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC")

_NEEDED: Final = {"avx2", "fma", "f16c"}
"""The instructions that a processor has to have, as the system calls them."""

_PATIENCE: Final = 120
"""Seconds after which a compiler is given up."""

_THREADS: Final = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "GOMP_barrier")
"""The functions of the OpenMP library that torch has loaded."""

_ARGUMENTS: Final = {"p": ctypes.c_void_p, "s": ctypes.c_ssize_t, "f": ctypes.c_float, "i": ctypes.c_int}

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
    """Return a ctypes structure of the kernels, from pairs of a type and the names of its members."""
    fields = [(name, kind) for kind, names in members for name in names.split()]
    return type("Structure", (ctypes.Structure,), {"_fields_": fields})


class UnavailableError(Exception):
    """The kernels cannot be used here; the text says why."""


class UnfitError(UnavailableError):
    """They are not for such a machine."""


def kernels() -> Any | None:
    """Return the compiled kernels; None where they cannot be used."""
    return _load_once()[0] if is_open() else None


def missing_kernels(model: Any) -> str | None:
    """Return why decoding steps do not go by the kernels, though the processor could; else None.

    These have products of float32 numbers, whatever the model's own type is, and of bfloat16 numbers where the
    processor's vectors multiply such.
    """
    if model.device.type != "cpu" or not is_open():
        return None
    by_itself = str(model.dtype) == "torch.bfloat16" and "avx512_bf16" in instructions()
    wide = str(model.dtype) == "torch.float32" or computes_in_float32(model.dtype, model.device)
    return _load_once()[1] if by_itself or wide else None


def multiplies_by_tiles() -> bool:
    """Return whether the kernels multiply more than a few rows by the processor's tile unit."""
    library = kernels()
    return library is not None and library.by_tiles


def describe_cpu() -> str:
    """Return one line with all properties of the processor that decide how numbers are computed."""
    import torch

    if not is_open():
        return "plain"
    own_kernels = "" if kernels() is None else ", own by tiles" if multiplies_by_tiles() else ", own"
    library = ("MKL" if mkl_is_faster() else "oneDNN") + own_kernels
    wide = [name for name in HALF if not multiplies(name)]
    return f"{torch.backends.cpu.get_cpu_capability()} {library} {wide}"


@functools.cache
def _load_once() -> tuple[Any | None, str | None]:
    try:
        return _load(_compile_if_missing(cache_folder("kernels"))), None
    except UnavailableError as error:
        return None, None if isinstance(error, UnfitError) else str(error)


def _compile_if_missing(folder: Path) -> Path:
    """Return the file of the compiled kernels, which is made unless it is there."""
    flags = instructions()
    if platform.system() != "Linux" or not flags >= _NEEDED:
        raise UnfitError("they are for Linux, and processors with AVX2 and FMA")
    text = b"".join(path.read_bytes() for path in sorted(_SOURCE.glob("*.[ch]")))
    reasons = []
    for compiler in _compilers():
        cache_key = "\0".join([*compiler, *_FLAGS, *sorted(flags)]).encode()
        path = folder / f"{hashlib.sha256(text + cache_key).hexdigest()[:32]}.so"
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
    commands = [[path, *rest] for first, *rest in named if (path := shutil.which(first))]
    if not commands:
        raise UnavailableError(f"there is no C compiler ({' or '.join(first for first, *_ in named)})")
    return commands


def _compile(compiler: list[str], path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / path.name
            command = [*compiler, *_FLAGS, str(_SOURCE / "kernels.c"), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)
            if done.returncode:
                error_lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
                raise UnavailableError(f"{compiler[0]} does not compile them: {error_lines[0]}")
            disk.rename(made, path)  # other processes see the whole file or none
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{compiler[0]} takes longer than {_PATIENCE} s") from None
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror or error}") from None


def _load(path: Path) -> Any:
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
        function.argtypes = [_ARGUMENTS[letter] for letter in takes]
        function.restype = ctypes.c_ssize_t if name in _GIVES else None
    library.by_tiles, library.by_halves = bool(library.use_tiles()), bool(library.has_halves())
    return library


_COMPUTED: Final = ("torch.float32", "torch.bfloat16")


def has_kernels_for(states: torch.Tensor) -> bool:
    """Return whether the kernels take such hidden states."""
    return str(states.dtype) in _COMPUTED and states.device.type == "cpu" and kernels() is not None


def rms_norm(states: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return states [..., width] after an RMSNorm with the weights of ``norm``."""
    import torch

    given = states.contiguous()
    normed, width = torch.empty_like(given), given.shape[-1]
    _kernels().normalize(
        *(given.data_ptr(), norm.weight.data_ptr(), norm.variance_epsilon, width, given.numel() // width),
        *(normed.data_ptr(), _is_half(states), torch.get_num_threads()),
    )
    return normed


def silu_gate(both: torch.Tensor) -> torch.Tensor:
    """Return silu(gates) times ups [..., width] of dense ``both`` [..., gates and ups]."""
    import torch

    width = both.shape[-1] // 2
    activated = both.new_empty(*both.shape[:-1], width)
    _kernels().gate(
        *(both.data_ptr(), width, both.numel() // (2 * width), activated.data_ptr()),
        *(_is_half(both), torch.get_num_threads()),
    )
    return activated


def apply_rotary(
    heads: torch.Tensor,
    count: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
    norms: Sequence[tuple[Any, int]] = (),
) -> None:
    """Apply rotary embeddings to the first ``count`` heads, in place.

    Args:
        heads: Dense heads [rows, tokens, heads, width].
        count: The number of heads to rotate.
        cos: Cosines [rows or 1, tokens, width].
        sin: Sines [rows or 1, tokens, width].
        norms: RMSNorms to apply first, each with its number of heads, in order; all have one epsilon.

    """
    import torch

    rows, tokens, _, width = heads.shape
    cos, sin = (angles.to(heads.dtype).contiguous() for angles in (cos, sin))
    weights = [norm.weight.to(heads.dtype).expand(number, -1) for norm, number in norms]
    all_weights = torch.cat(weights) if weights else None
    eps = norms[0][0].variance_epsilon if norms else 0.0
    _kernels().turn_heads(
        *(heads.data_ptr(), heads.stride(1), count, width, rows * tokens),
        *(cos.data_ptr(), sin.data_ptr(), cos.shape[0] * tokens),
        *(None if all_weights is None else all_weights.data_ptr(), eps),
        *(_is_half(heads), torch.get_num_threads()),
    )


def log_sums(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-sum-exp of each row of float32 logits [N, vocabulary], and its first argmax."""
    import torch

    given = logits.contiguous()
    rows, width = given.shape
    most, sums, places = (torch.empty(rows, dtype=kind) for kind in (given.dtype, torch.float64, torch.int64))
    _kernels().sum_rows(
        *(given.data_ptr(), width, rows, most.data_ptr(), sums.data_ptr(), places.data_ptr()),
        torch.get_num_threads(),
    )
    return sums.log_().add_(most).to(logits.dtype), places


_MOST_KEYS: Final = 2048
"""The keys of a pass that a thread's memory has room for."""

_SIZE: Final = ctypes.c_ssize_t

_Pass: Final = structure(
    (ctypes.c_void_p, "queries keys values mask out"),
    (_SIZE, "rows tokens heads groups width length"),
    (_SIZE, "query_row query_head query_token key_row key_head key_token value_row value_head value_token"),
    (_SIZE, "mask_row mask_token"),
    (ctypes.c_float, "scale"),
    (ctypes.c_int32, "threads"),
    (_SIZE, "next"),
    (ctypes.c_int32, "half"),
)


def attend(
    asked: torch.Tensor, key_value: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor | None, scale: float
) -> torch.Tensor | None:
    """Return attention [rows, tokens, heads * width] for queries [rows, heads, tokens, width].

    The mask [rows or 1, 1, tokens, keys] is additive. Return None where the kernels do not support such a pass. A token
    that sees no key gets 0.
    """
    import torch

    rows, heads, tokens, width = asked.shape
    keys, length = key_value[0], key_value[0].shape[2]
    if mask is None or mask.shape not in ((rows, 1, tokens, length), (1, 1, tokens, length)):
        return None
    if length > _MOST_KEYS or key_value[1].shape != keys.shape or keys.shape[3] != width:
        return None
    parts = (asked, *key_value, mask)
    if any(tensor.dtype != asked.dtype or tensor.stride(3) != 1 for tensor in parts) or not asked.numel():
        return None
    attention = asked.new_empty(rows, tokens, heads * width)
    given = _Pass(
        *(tensor.data_ptr() for tensor in (*parts, attention)),
        *(rows, tokens, keys.shape[1], heads // keys.shape[1], width, length),
        *(tensor.stride(at) for tensor in (asked, *key_value) for at in range(3)),
        *(mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(2)),
        *(scale, torch.get_num_threads(), 0, _is_half(asked)),
    )
    _kernels().attend(ctypes.byref(given))
    return attention


def _is_half(numbers: torch.Tensor) -> bool:
    return numbers.element_size() == 2


def _kernels() -> Any:
    return kernels()
