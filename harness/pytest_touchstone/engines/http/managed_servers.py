"""Servers that a run starts for itself: ``--checkpoint vllm:PATH``, ``sglang:PATH`` and ``llama-server:PATH.gguf``.

PATH is anything that names one checkpoint. The server is found on ``PATH``, listens at a free port of loopback alone,
and then is asked like any other. It lives as long as ``CheckpointRequest.lasting``: the process that a person has
started keeps it, and workers of xdist ask the same server. Unlike that of other served models, the fingerprint is of
the weights.

Between this process and the server stands ``parent_watch``, which ends the server when this process closes a pipe or
dies, and all that the server has started with it. Ctrl-C in a terminal does not reach them: the answers under way are
waited for first.
"""

from __future__ import annotations

import http.client
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pytest_touchstone.checkpoints.formats.base import CheckpointRequest, CheckpointResources
from pytest_touchstone.checkpoints.formats.gguf import read_gguf, tokenizer_of
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.keys import MARK, masked, masked_value, values_of_keys
from pytest_touchstone.core.text import one_line
from pytest_touchstone.engines.http import parent_watch
from pytest_touchstone.engines.http.engine import inspect_server
from pytest_touchstone.engines.http.server import NAMES, parse_address

HOST: Final = "127.0.0.1"

START_SECONDS: Final = 1800.0
"""The seconds that a server may take to load its model."""

SILENT_SECONDS: Final = 2.0
"""The seconds after which a person is told what is waited for."""

_LOOK_EVERY: Final = 0.1
_ASK_SECONDS: Final = 10.0
_TAIL_LINES: Final = 3
_TAIL_LONGEST: Final = 500

_KEYS_OF_SERVERS: Final = ("VLLM_API_KEY", "LLAMA_API_KEY")
"""The variables by which servers demand a key."""


class ManagedServer:
    """A server that was started; ``what`` names it in messages, ``log`` has all that it says."""

    def __init__(self, what: str, command: Sequence[str], port: int) -> None:
        self._what, self.port = what, port
        self._secrets = tuple(values_of_keys(command))
        self._failed = False
        with tempfile.NamedTemporaryFile(prefix=f"touchstone-{what}-", suffix=".log", delete=False) as log:
            self.log = Path(log.name)
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", parent_watch.__file__, str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(os.environ),
                start_new_session=True,
            )

    def wait(self, lasting: CheckpointResources, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers. Raises ``CheckpointError`` with its last words where it ends before, or does
        not in that many seconds."""
        began, silent = time.monotonic(), True
        while not self._answers():
            waited = time.monotonic() - began
            if (code := self._guard.poll()) is not None or waited > seconds:
                self._failed = True
                late = f"does not answer {seconds:.0f} s after its start"
                why = late if code is None else f"ended with exit code {code} before it answered"
                raise CheckpointError(f"{self._what} {why}; its last words: {self._last_words()}")
            if waited > SILENT_SECONDS and silent:
                silent = False
                lasting.say(f"{self._what} is starting; its log: {self.log}")
            time.sleep(_LOOK_EVERY)

    def end(self, lasting: CheckpointResources) -> None:
        """End the server, and all that it has started. Its log goes to the run's folder, if there is one."""
        code = self._guard.poll()
        with suppress(subprocess.TimeoutExpired):  # the guard goes on by itself
            self._guard.communicate(timeout=parent_watch.GRACE + _ASK_SECONDS)
        with suppress(OSError):
            self._keep_log(lasting.logs, wanted=self._failed or code is not None)
        if code is not None and not self._failed:
            lasting.say(
                f"{self._what} had ended by itself, with exit code {code}; its last words: {self._last_words()}"
            )

    def _last_words(self) -> str:
        """Return the last lines of the log as one, without colours and keys, shortened at its beginning; and where the
        others are."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "nothing"
        last = [line for line in lines if line.strip()][-_TAIL_LINES:]
        text = " / ".join(one_line(without_secrets(line, self._secrets)) for line in last) or "nothing"
        text = text if len(text) <= _TAIL_LONGEST else f"...{text[-_TAIL_LONGEST:]}"
        return f"{text} (all of them: {self.log})"

    def _keep_log(self, folder: Path | None, *, wanted: bool) -> None:
        """Move the log without its keys to a folder that is there; else leave it where it is, if it is ``wanted``."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        log, moved = self.log, folder is not None and folder.is_dir()
        if folder is not None and moved:
            self.log = folder / f"{self._what}-{self.port}.log"
        if moved or wanted:
            self.log.write_text("".join(without_secrets(line, self._secrets) for line in lines), "utf-8")
        if moved or not wanted:
            log.unlink()

    def _answers(self) -> bool:
        """Return whether the model is loaded: llama-server lists it before that, but is not well yet."""
        return _status(self.port, "/health") in (200, 404) and _status(self.port, "/v1/models") == 200


def free_port() -> int:
    """Return a port of loopback on which nothing listens now."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return a text of a server without the keys that it was given, and without what looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MARK.format("an API key"))
    return masked(text)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without keys: the server is asked by this process alone, and needs none."""
    return {name: value for name, value in environ.items() if name not in (*NAMES, *_KEYS_OF_SERVERS)}


def _status(port: int, path: str) -> int | None:
    """Return the status of a GET, None where there is no reply."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


SLOTS: Final = 4
"""The texts that llama-server continues at once, each with a context of its own."""

MOST_CONTEXT: Final = 8192
"""The tokens of such a context, unless ``--eval-seq-len`` says so: it has its memory from the beginning on."""


@dataclass(frozen=True, slots=True)
class ServerStart:
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

    def options(self, length: str) -> tuple[str, ...]:
        """Return the options that are set; ``length`` is the server's name for that of texts."""
        names = {length: self.seq_len, "--dtype": self.dtype}
        return tuple(str(word) for pair in names.items() if pair[1] is not None for word in pair)


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """The command of a server, without the place to listen at; ``what`` names it, with its version if it says none
    itself."""

    what: str
    arguments: tuple[str, ...]
    version: str = ""


def vllm_command(start: ServerStart) -> ServerCommand:
    """Return the command that starts vLLM. Raises ``CheckpointError`` where it is not there."""
    program = shutil.which("vllm")
    if program is None:
        raise CheckpointError(
            "no vllm on PATH; install it (pip install vllm), in an environment of its own if need be, whose bin "
            "folder you put at the end of PATH"
        )
    return ServerCommand("vllm", (program, "serve", start.path, *start.options("--max-model-len")))


def sglang_command(start: ServerStart) -> ServerCommand:
    """Return the command that starts SGLang. Raises ``CheckpointError`` where it is not there."""
    for python in _find_pythons():
        if (version := _installed_version(python, "sglang", "sglang")) is not None:
            module = (python, "-m", "sglang.launch_server", "--model-path", start.path)
            return ServerCommand("sglang", (*module, *start.options("--context-length")), version)
    raise CheckpointError(
        "no sglang in the Python on PATH; install it (pip install sglang), in an environment of its own if need be, "
        "whose bin folder you put at the end of PATH"
    )


def llama_command(start: ServerStart) -> ServerCommand:
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
        return ServerCommand("llama-server", (program, "--model", start.path, *size))
    for python in _find_pythons():
        if (version := _installed_version(python, "llama-cpp-python", "llama_cpp", "uvicorn")) is not None:
            module = (python, "-m", "llama_cpp.server", "--model", start.path, "--n_ctx", str(context or 0))
            return ServerCommand("llama_cpp.server", module, version)
    raise CheckpointError(
        "no llama-server on PATH, nor llama_cpp.server in the Python there; install llama.cpp, or "
        "pip install 'llama-cpp-python[server]'"
    )


COMMANDS: Final[Mapping[str, Callable[[ServerStart], ServerCommand]]] = MappingProxyType(
    {"vllm:": vllm_command, "sglang:": sglang_command, "llama-server:": llama_command}
)


class LocalServers:
    """Describes models at servers of our own; the engine ``http`` asks them."""

    targets = tuple(COMMANDS)
    options: Mapping[str, str] = MappingProxyType(
        {
            "model": "the model to ask, where the server has several",
            "tokenizer": "a folder, Hub id or checkpoint with the model's tokenizer (default: PATH)",
            "args": "more arguments for the server",
            "dtype": "the type that vLLM or SGLang computes in",
        }
    )

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Start the server of a model, and describe it. Raises ``CheckpointError`` where it does not start."""
        del path  # in which two slashes are one
        target = next(prefix for prefix in COMMANDS if asked.source.startswith(prefix))
        name = asked.source.removeprefix(target).partition("?")[0]
        if asked.lasting is None:
            raise CheckpointError(
                f"{asked.source}: no server is started for this; give the checkpoint {name} itself"
            )
        try:
            local, model_path = _find_model(name, asked)
            dtype = asked.options.get("dtype")
            start = ServerStart(model_path, local, asked.seq_len, None if dtype == "auto" else dtype)
            info = _start_server(COMMANDS[target](start), start, asked, asked.lasting)
        except CheckpointError as error:
            raise CheckpointError(f"{asked.source}: {error}") from None
        return replace(info, name=f"{Path(model_path).name if local is None else local.name}-{target[:-1]}")


def _find_model(name: str, asked: CheckpointRequest) -> tuple[CheckpointInfo | None, str]:
    """Return the checkpoint that a name means, and what the server is told; a file or folder that is not known here may
    be known to the server."""
    try:
        checkpoints = resolve(name, seq_len=asked.seq_len, served=True)
    except CheckpointError:
        path = Path(name).expanduser()
        if not name or not path.exists():
            raise
        return None, str(path.absolute())
    if len(checkpoints) > 1:
        raise CheckpointError(f"{name} means {len(checkpoints)} checkpoints, and a server has one; name it")
    return checkpoints[0], str(checkpoints[0].path.absolute())


def _start_server(
    command: ServerCommand, start: ServerStart, asked: CheckpointRequest, lasting: CheckpointResources
) -> CheckpointInfo:
    arguments, port = shlex.split(asked.options.get("args", "")), free_port()
    child = ManagedServer(
        command.what, (*command.arguments, "--host", HOST, "--port", str(port), *arguments), port
    )
    lasting.callback(child.end, lasting)
    child.wait(lasting)
    model_options = {
        "model": asked.options.get("model"),
        "tokenizer": asked.options.get("tokenizer") or _tokenizer(start),
    }
    options = {name: value for name, value in model_options.items() if value is not None}
    address = parse_address(f"http://{HOST}:{port}")
    info = inspect_server(address, replace(asked, options=options), start.context)
    return _described(info, command, start, masked_value(arguments))


def _tokenizer(start: ServerStart) -> str | None:
    """Return where the model's tokenizer is; None where only the server knows its kind."""
    if start.local is not None and start.local.format == "gguf":
        header = read_gguf(start.local.path)
        try:
            tokenizer_of(start.local.path, header.architecture, header.keys)
        except CheckpointError:
            return None
    return None if start.local is None else start.path


def _described(
    info: CheckpointInfo, command: ServerCommand, start: ServerStart, arguments: list[str]
) -> CheckpointInfo:
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


def _find_pythons() -> Iterator[str]:
    """Yield this Python, then those on PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    pythons = (shutil.which(name, path=folder) for folder in folders for name in ("python3", "python"))
    yield from dict.fromkeys((sys.executable, *filter(None, pythons)))


def _installed_version(python: str, distribution: str, *modules: str) -> str | None:
    """Return the version of a distribution that a Python has with all these modules, None where it lacks one."""
    code = (
        "import importlib.metadata as m, importlib.util as u; "
        f"assert all(map(u.find_spec, {modules!r})); print(m.version({distribution!r}))"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
