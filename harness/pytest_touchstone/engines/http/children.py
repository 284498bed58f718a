"""Servers that a run starts for itself: ``--checkpoint vllm:PATH`` and ``--checkpoint llama-server:PATH.gguf``.

PATH is anything that names one checkpoint. The server is found on ``PATH``, listens at a free port of loopback alone,
and then is asked like any other. It lives as long as ``Asked.lasting``: the process that a person has started keeps it,
and workers of xdist ask the same server. Unlike that of other served models, the fingerprint is of the weights.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pytest_touchstone.checkpoints.formats.base import CheckpointRequest, Lasting
from pytest_touchstone.checkpoints.formats.gguf import read_gguf, tokenizer_of
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.keys import masked_value
from pytest_touchstone.engines.http.address import parse_address
from pytest_touchstone.engines.http.factory import inspect_server

SLOTS: Final = 4
"""The texts that llama-server continues at once, each with a context of its own."""

MOST_CONTEXT: Final = 8192
"""The tokens of such a context, unless ``--eval-seq-len`` says so: it has its memory from the beginning on."""


@dataclass(frozen=True, slots=True)
class Start:
    """A server to be started: ``path`` or Hub id of its model, the ``local`` checkpoint there as far as it is known
    here, and the options that it is to have."""

    path: str
    local: CheckpointInfo | None
    seq_len: int | None
    dtype: str | None

    @property
    def context(self) -> int | None:
        """The tokens that a text may have at a server that must know it before; None where nothing says it."""
        if self.seq_len is not None or self.local is None:
            return self.seq_len
        return min(self.local.seq_len, MOST_CONTEXT)


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a server, without the place to listen at; ``what`` names it, with its version if it says none
    itself."""

    what: str
    arguments: tuple[str, ...]
    version: str = ""


def vllm_command(start: Start) -> Command:
    """Return the command that starts vLLM. Raises ``CheckpointError`` where it is not there."""
    program = shutil.which("vllm")
    if program is None:
        raise CheckpointError(
            "no vllm on PATH; install it (pip install vllm), in an environment of its own if need be, whose bin "
            "folder you put at the end of PATH"
        )
    length = () if start.seq_len is None else ("--max-model-len", str(start.seq_len))
    dtype = () if start.dtype is None else ("--dtype", start.dtype)
    return Command("vllm", (program, "serve", start.path, *length, *dtype))


def llama_command(start: Start) -> Command:
    """Return the command that starts llama.cpp's server, else llama-cpp-python's.

    Raises ``CheckpointError`` where neither is there, the model is no GGUF file, or a type is demanded.
    """
    if start.local is not None and start.local.format != "gguf":
        raise CheckpointError(
            f"{start.path} is no GGUF file, which is all that llama.cpp takes; vllm:PATH starts a server for folders"
        )
    if start.dtype is not None:
        raise CheckpointError(
            f"llama.cpp computes with the types of the file and not in --eval-dtype {start.dtype}; leave it out"
        )
    context = start.context
    if (program := shutil.which("llama-server")) is not None:
        size = () if context is None else ("--parallel", str(SLOTS), "--ctx-size", str(SLOTS * context))
        return Command("llama-server", (program, "--model", start.path, *size))
    for python in _pythons():
        if (version := _llama_cpp_python(python)) is not None:
            module = (python, "-m", "llama_cpp.server", "--model", start.path, "--n_ctx", str(context or 0))
            return Command("llama_cpp.server", module, version)
    raise CheckpointError(
        "no llama-server on PATH, nor llama_cpp.server in the Python there; install llama.cpp, or "
        "pip install 'llama-cpp-python[server]'"
    )


COMMANDS: Final[Mapping[str, Callable[[Start], Command]]] = MappingProxyType(
    {"vllm:": vllm_command, "llama-server:": llama_command}
)


class LocalServers:
    """Describes models at servers of our own; the engine ``http`` asks them."""

    targets = tuple(COMMANDS)
    options: Mapping[str, str] = MappingProxyType(
        {
            "model": "the model to ask, where the server has several",
            "tokenizer": "a folder, Hub id or checkpoint with the model's tokenizer (default: PATH)",
            "args": "more arguments for the server",
            "dtype": "the type that vLLM computes in",
        }
    )

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Start the server of a model, and describe it. Raises ``CheckpointError`` where it does not start."""
        del path  # in which two slashes are one
        target = next(one for one in COMMANDS if asked.source.startswith(one))
        name = asked.source.removeprefix(target).partition("?")[0]
        if asked.lasting is None:
            raise CheckpointError(
                f"{asked.source}: no server is started for this; give the checkpoint {name} itself"
            )
        try:
            local, where = _local(name, asked)
            dtype = asked.options.get("dtype")
            start = Start(where, local, asked.seq_len, None if dtype == "auto" else dtype)
            info = _started(COMMANDS[target](start), start, asked, asked.lasting)
        except CheckpointError as error:
            raise CheckpointError(f"{asked.source}: {error}") from None
        return replace(info, name=f"{Path(where).name if local is None else local.name}-{target[:-1]}")


def _local(name: str, asked: CheckpointRequest) -> tuple[CheckpointInfo | None, str]:
    """Return the checkpoint that a name means, and what the server is told; a file or folder that is not known here may
    be known to the server."""
    try:
        found = resolve(name, seq_len=asked.seq_len, served=True)
    except CheckpointError:
        path = Path(name).expanduser()
        if not name or not path.exists():
            raise
        return None, str(path.absolute())
    if len(found) > 1:
        raise CheckpointError(f"{name} means {len(found)} checkpoints, and a server has one; name it")
    return found[0], str(found[0].path.absolute())


def _started(command: Command, start: Start, asked: CheckpointRequest, lasting: Lasting) -> CheckpointInfo:
    from pytest_touchstone.engines.http.child import HOST, Child, free_port

    arguments = shlex.split(asked.options.get("args", ""))
    port = free_port()
    child = Child(
        command.what,
        (*command.arguments, "--host", HOST, "--port", str(port), *arguments),
        port,
    )
    lasting.callback(child.end, lasting)
    child.wait(lasting)
    tokenizer = asked.options.get("tokenizer") or _tokenizer(start)
    options = {name: asked.options[name] for name in ("model",) if name in asked.options}
    if tokenizer is not None:
        options["tokenizer"] = tokenizer
    address = parse_address(f"http://{HOST}:{port}")
    info = inspect_server(address, replace(asked, options=options), start.context)
    return _described(info, command, start, masked_value(arguments))


def _tokenizer(start: Start) -> str | None:
    """Return where the model's tokenizer is; None where only the server knows its kind."""
    if start.local is None:
        return None
    if start.local.format == "gguf":
        header = read_gguf(start.local.path)
        with contextlib.suppress(CheckpointError):
            tokenizer_of(start.local.path, header.architecture, header.keys)
            return start.path
        return None
    return start.path


def _described(info: CheckpointInfo, command: Command, start: Start, arguments: list[str]) -> CheckpointInfo:
    """Return the checkpoint under the path of its weights: the address is another one each time."""
    served = info.served | {
        "version": info.served["version"] or command.version,
        "weights": None if start.local is None else start.local.plain(),
        "arguments": arguments,
        "child": command.what,
    }
    return replace(
        info,
        path=Path(start.path),
        extra={"server": " ".join((command.what, *arguments))},
        served=served,
    )


def _pythons() -> Iterator[str]:
    """Yield this Python, then those on PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which(name, path=folder) for folder in folders for name in ("python3", "python"))
    yield from dict.fromkeys((sys.executable, *filter(None, found)))


def _llama_cpp_python(python: str) -> str | None:
    """Return the version of llama-cpp-python that a Python has with its server, None where it has none."""
    code = (
        "import importlib.metadata as m, importlib.util as u; "
        "assert u.find_spec('llama_cpp') and u.find_spec('uvicorn'); print(m.version('llama-cpp-python'))"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
