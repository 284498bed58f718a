"""Files of ``torch.save``, read without torch, without a tensor in memory, and without running anything.

The format: a zip archive of uncompressed records ``NAME/data.pkl`` (a pickle of protocol 2) and
``NAME/data/KEY``, the bytes of each storage. Here a pickle is data: only the opcodes that tensors and plain
values need are known, names in it stand for placeholders from one table, and nothing else can be called. A tensor
becomes a ``Tensor`` with the place of its bytes in the file. Plain pickles of objects whose classes are known by name,
such as the index of torch's distributed checkpoints, are read in the same way.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import readable
from pytest_touchstone.checkpoints.formats.content import Tensor, size_of
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import open_regular, read_regular

_LARGEST_PICKLE: Final = 1 << 24
"""Bytes of ``data.pkl``: that of a model with ten thousand tensors and its optimizer takes a tenth of it."""

_LARGEST_OBJECTS: Final = 1 << 26
"""Bytes of a plain pickle: the index of a model on five hundred ranks with its optimizer has as many."""

_MOST_SIDES: Final = 64

_OLD: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

_STORAGES: Final = {
    **{"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"},
    **{"LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8"},
    **{"ByteStorage": "U8", "BoolStorage": "BOOL", "ComplexFloatStorage": "C64"},
    **{"ComplexDoubleStorage": "C128", "UntypedStorage": "U8"},
}
DTYPES: Final = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"},
    **{"int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32"},
    **{"uint64": "U64", "bool": "BOOL", "complex64": "C64", "complex128": "C128"},
    **{"float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0"},
    **{"float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ"},
}
"""Number types by torch's names, with those of safetensors."""

_OPCODES: Final = (
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
    *("BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL"),
    *("BINPERSID", "REDUCE", "BUILD", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "NEWOBJ"),
    *("FRAME", "SHORT_BINUNICODE", "MEMOIZE", "STACK_GLOBAL"),
)
"""The opcodes that ``torch.load(weights_only=True)`` knows, and those of protocols 4 and 5."""

_BROKEN: Final = (
    *(pickle.UnpicklingError, EOFError, KeyError, IndexError, ValueError, TypeError, AttributeError),
    *(OverflowError, RuntimeError, MemoryError, struct.error),
)
"""The exceptions of broken pickles and archives; ``RuntimeError`` is ``zipfile``'s for an encrypted record."""


class RefusedError(Exception):
    """The pickle names something other than plain data."""


class _Storage(NamedTuple):
    dtype: str
    key: str


class _NamedClass(NamedTuple):
    """A number type, a kind of storage or a class, by its name."""

    shown: str
    dtype: str | None = None


class PickledObject:
    """An object of a class that is represented by its name; ``state`` is its pickled state."""

    __slots__ = ("kind", "state")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: Any = None

    def __getitem__(self, name: str) -> Any:
        """Return an attribute, None where there is none of that name."""
        return self.state.get(name) if isinstance(self.state, dict) else None


def read_pickled(path: Path, begin: int = 0, end: int | None = None) -> Any:
    """Read a file of ``torch.save``, or a range of bytes that holds one.

    Tensors are returned as ``Tensor``.

    Raises ``CheckpointError`` for a file that is cut off, that is not torch's, or that names anything which is not
    plain data.
    """
    with plain_pickle(path), open_regular(path) as file:
        section = io.BufferedReader(_Part(file, begin, path.stat().st_size if end is None else end))
        with zipfile.ZipFile(section) as archive:
            pickled, records = _records(path, archive, section)
        storages = {key: range(begin + record.start, begin + record.stop) for key, record in records.items()}
        return _PickleReader(path, pickled, storages).load()


def read_objects(
    path: Path,
    classes: Collection[str] = (),
    calls: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Any:
    """Read a plain pickle without running code.

    An object of one of ``classes`` becomes a ``PickledObject``. A call of one of ``calls`` becomes what its replacement
    returns.

    Raises ``CheckpointError`` for a broken pickle, and for one that wants any other class or function.
    """
    with plain_pickle(path):
        if (size := path.stat().st_size) > _LARGEST_OBJECTS:
            raise CheckpointError(
                f"{path}: a pickle of {size} bytes, {_LARGEST_OBJECTS} at most are read; save it again"
            )
        return _PickleReader(path, read_regular(path), {}, classes, calls).load()


class _Part(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: Any, begin: int, end: int) -> None:
        super().__init__()
        self._file, self._begin, self._size, self._at = file, begin, end - begin, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if start + offset < 0 and whence == os.SEEK_END:
            raise OSError(errno.EINVAL, "before its beginning")  # which zipfile expects of a short file
        if start + offset < 0:
            raise zipfile.BadZipFile
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._begin + self._at)
        count: int = self._file.readinto(memoryview(buffer)[: max(0, self._size - self._at)])
        self._at += count
        return count


@contextmanager
def plain_pickle(path: Path) -> Iterator[None]:
    """Raise ``CheckpointError`` for a broken or unsafe pickle that is read within the block."""
    try:
        with readable(path):
            yield
    except RefusedError as error:
        raise CheckpointError(
            f"{path}: its pickle wants {error}, which may run code, and is not loaded; "
            "save the tensors alone (model.state_dict()), with plain numbers and text beside them"
        ) from None
    except zipfile.BadZipFile as error:
        reason = "no file of torch.save (not a zip archive); save the checkpoint again with torch.save"
        if path.stat().st_size == 0:
            reason = "an empty file; copy the checkpoint again"
        elif _starts(path, b"PK"):
            reason = "cut off or broken (no zip directory at its end); copy the checkpoint again"
        raise CheckpointError(f"{path}: {reason}") from error
    except _BROKEN as error:
        raise CheckpointError(
            f"{path}: broken, its pickle cannot be read ({type(error).__name__}); save the checkpoint again"
        ) from error


def is_old(path: Path) -> bool:
    """Return whether torch before 1.6 wrote the file: a sequence of pickles, first a magic number."""
    return _starts(path, _OLD)


def _starts(path: Path, prefix: bytes) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(len(prefix)) == prefix
    except OSError:
        return False


def _records(
    path: Path, archive: zipfile.ZipFile, file: io.BufferedReader[Any]
) -> tuple[bytes, dict[str, range]]:
    """Return the pickle, and the bytes of each storage in the file by key."""
    infos = archive.infolist()
    pickles = [info for info in infos if info.filename.endswith("/data.pkl")]
    if len(pickles) != 1 or len({info.filename for info in infos}) != len(infos):
        raise CheckpointError(
            f"{path}: no file of torch.save (no data.pkl in it); give the checkpoint itself"
        )
    (record,) = pickles
    root = record.filename.removesuffix("data.pkl")
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise CheckpointError(f"{path}: compressed records, which torch.save does not write; save it again")
    if record.file_size > _LARGEST_PICKLE:
        raise CheckpointError(
            f"{path}: a pickle of {record.file_size} bytes is no checkpoint's; save tensors and plain values alone"
        )
    size = file.seek(0, os.SEEK_END)
    storages = {}
    for info in infos:
        if info.filename == f"{root}byteorder" and archive.read(info).strip() != b"little":
            raise CheckpointError(f"{path}: written in big-endian order; save it again on another machine")
        if info.filename.startswith(f"{root}data/"):
            begin = _data_offset(file, info.header_offset)
            if begin + info.file_size > size:
                raise zipfile.BadZipFile
            storages[info.filename.removeprefix(f"{root}data/")] = range(begin, begin + info.file_size)
    return archive.read(record), storages


def _data_offset(file: io.BufferedReader[Any], header: int) -> int:
    """Return the offset of a record's bytes in the file.

    They follow a local header of 30 bytes, the name, and padding.
    """
    file.seek(header)
    local = file.read(30)
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile
    name, extra = struct.unpack_from("<HH", local, 26)
    return int(header + 30 + name + extra)


class _PickleReader(pickle._Unpickler):
    """A safe pickle machine: every name is a placeholder, every call a handler of ours."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Callable[..., None]]] = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _OPCODES
    }

    def __init__(
        self,
        path: Path,
        content: bytes,
        storages: dict[str, range],
        classes: Collection[str] = (),
        calls: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    ) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self._path = path
        self._records = storages
        self._classes = classes
        self._calls: dict[str, Callable[..., Any]] = {
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": lambda storage, offset, shape, strides, _grad, _hooks, named, *_: (
                self._tensor(storage._replace(dtype=named.dtype), offset, shape, strides)
            ),
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
            # None of them copies what it is given: a few bytes could ask for that again and again.
            "collections.OrderedDict": lambda: OrderedDict(),  # noqa: PLW0108
            "collections.Counter": lambda counts=None: counts,
            "torch.Size": lambda sides: sides,
            "torch.device": lambda kind, _index=None: kind,
            **calls,
        }

    def find_class(self, module: str, name: str) -> Any:
        """Return the placeholder of a name; raise ``RefusedError`` for an unknown one."""
        full = f"{module}.{name}".replace("__builtin__.", "builtins.")
        dtype = {**_STORAGES, **DTYPES}.get(name)
        if dtype is not None and module in ("torch", "torch.storage"):
            return _NamedClass(full, dtype)
        if full in self._classes:
            return _NamedClass(full)
        if full not in self._calls:
            raise RefusedError(full)
        return self._calls[full]

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage of a tensor."""
        tag, kind, key, _, _ = pid
        if (
            tag != "storage"
            or not isinstance(kind, _NamedClass)
            or not kind.dtype
            or key not in self._records
        ):
            raise pickle.UnpicklingError(f"storage {key}")
        return _Storage(kind.dtype, key)

    def load_reduce(self) -> None:
        """Call one of the placeholders; refuse any other callable."""
        arguments = self.stack.pop()
        call = self.stack[-1]
        if not any(call is allowed for allowed in self._calls.values()) or not isinstance(arguments, tuple):
            raise RefusedError(getattr(call, "shown", None) or f"a call of {type(call).__name__}")
        self.stack[-1] = call(*arguments)

    def load_newobj(self) -> None:
        """Make the placeholder of an object without arguments."""
        arguments, kind = self.stack.pop(), self.stack[-1]
        if not isinstance(kind, _NamedClass) or kind.dtype or arguments != ():
            raise RefusedError(getattr(kind, "shown", None) or f"an object of {type(kind).__name__}")
        self.stack[-1] = PickledObject(kind.shown)

    def load_build(self) -> None:
        """Set the attributes of a new object, and ignore those of a state dict."""
        state, made = self.stack.pop(), self.stack[-1]
        if isinstance(made, PickledObject) and made.state is None:
            made.state = state
        elif not isinstance(made, OrderedDict):
            raise RefusedError(f"attributes on {type(made).__name__}")

    def load_appends(self) -> None:
        """Append to a list."""
        items = self.pop_mark()
        self._last(list).extend(items)

    def load_append(self) -> None:
        """Append one value to a list."""
        item = self.stack.pop()
        self._last(list).append(item)

    def load_setitems(self) -> None:
        """Set items of a dictionary."""
        self._set_items(self.pop_mark())

    def load_setitem(self) -> None:
        """Set an item of a dictionary."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def _set_items(self, items: list[Any]) -> None:
        self._last(dict).update(zip(map(_check_flat, items[::2]), items[1::2], strict=True))

    def _last(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise pickle.UnpicklingError(f"contents of what is not a {kind.__name__}")
        return self.stack[-1]

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.APPENDS[0]] = load_appends
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = load_setitem

    def _tensor(
        self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
    ) -> Tensor:
        """Return a tensor, if its storage holds it and its numbers do not overlap."""
        for numbers in (shape, strides):
            if (
                not isinstance(numbers, tuple)
                or len(numbers) > _MOST_SIDES
                or set(map(type, numbers)) - {int}
            ):
                raise pickle.UnpicklingError("a tensor of an unknown form")
        dtype, record = storage.dtype, self._records[storage.key]
        size = size_of(dtype, shape)
        item_size = size_of(dtype, ())
        if size is None or item_size is None or offset < 0 or len(shape) != len(strides):
            raise pickle.UnpicklingError("a tensor of an unknown form")
        last = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
        capacity = len(record) // item_size
        if size and (min(strides, default=0) < 0 or offset + last >= capacity or size > len(record)):
            raise CheckpointError(
                f"{self._path}: a tensor of shape {list(shape)} needs {size} bytes, but its storage "
                f"{storage.key!r} holds {len(record)}; copy or save the checkpoint again"
            )
        contiguous = tuple(prod(max(side, 1) for side in shape[axis + 1 :]) for axis in range(len(shape)))
        if strides == contiguous or not size:
            begin = record.start + offset * item_size
            return Tensor(dtype, shape, self._path, begin, begin + size)
        # Transposed and the like: its numbers may lie anywhere in its storage.
        return Tensor(dtype, shape, self._path, record.start, record.stop, (*strides, offset))


def _check_flat(key: Any) -> Any:
    """Return a dictionary's key; raise for tuples within tuples.

    A few bytes can nest tuples so often that hashing them never ends.
    """
    if isinstance(key, tuple) and any(isinstance(inner, tuple) for inner in key):
        raise pickle.UnpicklingError("tuples within a key")
    return key
