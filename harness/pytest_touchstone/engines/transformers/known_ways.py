"""Fast ways of computing that a probe has admitted before, in the user's cache, so that later starts need no probe.

They are known by everything but the weights' values: the model's class, config and tensors' shapes, number type and
device, the versions of torch and transformers, and the code of this folder. What was refused is not remembered: it is
tried again at each start. A small model is always tried, since its probe takes no time.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.devices import devices_of
from pytest_touchstone.engines.transformers.memory import bytes_of_weights

_LEAST: Final = 10_000_000
"""The number of parameters from which a model's probe is worth remembering."""

_MOST: Final = 1000
"""The number of models kept, the newest ones."""


class KnownWays:
    """The ways admitted for one model; nothing is remembered without a folder."""

    def __init__(self, model: Any, folder: Path | None) -> None:
        self._path = None if folder is None else folder / f"{_key(model)}.json"
        self._known = _read(self._path)

    def tried(self, way: str, probe: Callable[[], str | None]) -> str | None:
        """Return None where the way is known, or where the probe finds no difference; else the difference."""
        if way in self._known:
            return None
        if (different := probe()) is None:
            self._known.add(way)
            self._keep()
        return different

    def _keep(self) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # where nothing can be written, the next start probes again
            write_atomic(self._path, json.dumps(sorted(self._known | _read(self._path))))
            entries = sorted(self._path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for path in entries[:-_MOST]:
                path.unlink(missing_ok=True)


def folder_for(model: Any) -> Path | None:
    """Return the folder of the user's cache, for a large model whose ways depend on this code and its versions alone.

    None for a small model, for one with code of its own, which may change, and for one that is no module of torch.
    """
    import torch

    if type(model).__module__.startswith("transformers_modules") or not isinstance(model, torch.nn.Module):
        return None
    size: Any = model.dtype.itemsize
    return cache_folder("ways") if bytes_of_weights(model) >= _LEAST * size else None


def _read(path: Path | None) -> set[str]:
    try:
        found = json.loads(path.read_bytes()) if path is not None else []
    except (OSError, ValueError):
        return set()
    return {way for way in found if isinstance(way, str)} if isinstance(found, list) else set()


def _key(model: Any) -> str:
    """Return a hash of all that the outcome of a probe depends on, but for the weights' values."""
    shapes = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in model.state_dict().items()]
    config = {name: value for name, value in model.config.to_dict().items() if "name_or_path" not in name}
    said = [
        *(type(model).__qualname__, str(model.dtype), getattr(model, "drafts", 0)),
        *(_device(model.device), *devices_of(model)[1:], version("torch"), version("transformers"), _code()),
    ]
    text = json.dumps(
        [said, config, model.config.get_text_config()._attn_implementation, shapes], default=str
    )
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _device(device: Any) -> str:
    import torch

    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)} {torch.version.cuda}"
    return f"{device.type} {cpu.description()}"


@functools.cache
def _code() -> str:
    digest = hashlib.sha256()
    for path in sorted(one for one in Path(__file__).parent.rglob("*") if one.suffix in (".py", ".c", ".h")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
