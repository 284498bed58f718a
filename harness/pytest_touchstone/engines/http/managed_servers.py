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
from pytest_touchstone.core.keys import MARK, option_keys, redact, redact_value
from pytest_touchstone.core.text import one_line
from pytest_touchstone.engines.http import parent_watch
from pytest_touchstone.engines.http.engine import inspect_server
from pytest_touchstone.engines.http.server import NAMES, parse_address

HOST: Final = "127.0.0.1"

START_SECONDS: Final = 1800.0
"""The maximum seconds for a server to load its model."""

SILENT_SECONDS: Final = 2.0
"""The seconds after which the user is told about the wait."""

_LOOK_EVERY: Final = 0.1
_ASK_SECONDS: Final = 10.0
_TAIL_LINES: Final = 3
_TAIL_LONGEST: Final = 500

_KEYS_OF_SERVERS: Final = ("VLLM_API_KEY", "LLAMA_API_KEY")
"""The variables by which servers demand a key."""


class ManagedServer:
    """A server started by this process; ``what`` names it in messages, ``log`` has all its output."""

    def __init__(self, what: str, command: Sequence[str], port: int) -> None:
        self._what, self.port = what, port
        self._secrets = tuple(option_keys(command))
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
        """Wait until the server answers.

        Raises ``CheckpointError`` with the end of the server's log if it ends before, or does not answer in time.
        """
        began, silent = time.monotonic(), True
        while not self._is_ready():
            waited = time.monotonic() - began
            if (code := self._guard.poll()) is not None or waited > seconds:
                self._failed = True
                late = f"does not answer {seconds:.0f} s after its start"
                why = late if code is None else f"ended {_describe_end(code)} before it answered"
                raise CheckpointError(f"{self._what} {why}; its last words: {self._last_words()}")
            if waited > SILENT_SECONDS and silent:
                silent = False
                lasting.say(f"{self._what} is starting; its log: {self.log}")
            time.sleep(_LOOK_EVERY)

    def end(self, lasting: CheckpointResources) -> None:
        """End the server and its child processes; move its log to the run's folder, if there is one."""
        code = self._guard.poll()
        with suppress(subprocess.TimeoutExpired):  # the guard goes on by itself
            self._guard.communicate(timeout=parent_watch.GRACE + _ASK_SECONDS)
        with suppress(OSError):
            self._keep_log(lasting.logs, wanted=self._failed or code is not None)
        if code is not None and not self._failed:
            lasting.say(
                f"{self._what} had ended by itself, {_describe_end(code)}; its last words: {self._last_words()}"
            )

    def _last_words(self) -> str:
        """Return the end of the log on one line, without colours and keys, and the path of the log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "nothing"
        last = [line for line in lines if line.strip()][-_TAIL_LINES:]
        text = " / ".join(one_line(without_secrets(line, self._secrets)) for line in last) or "nothing"
        text = text if len(text) <= _TAIL_LONGEST else f"...{text[-_TAIL_LONGEST:]}"
        return f"{text} (all of them: {self.log})"

    def _keep_log(self, folder: Path | None, *, wanted: bool) -> None:
        """Move the redacted log to an existing folder; without one, keep it in place if it is ``wanted``."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        log, moved = self.log, folder is not None and folder.is_dir()
        if folder is not None and moved:
            self.log = folder / f"{self._what}-{self.port}.log"
        if moved or wanted:
            self.log.write_text("".join(without_secrets(line, self._secrets) for line in lines), "utf-8")
        if moved or not wanted:
            log.unlink()

    def _is_ready(self) -> bool:
        """Return whether the model is loaded; llama-server lists it before that, but is not healthy yet."""
        return _status(self.port, "/health") in (200, 404) and _status(self.port, "/v1/models") == 200


def _describe_end(code: int) -> str:
    """Return how a server has ended, by the exit code of its ``parent_watch``."""
    return f"by signal {code - 128}" if code > 128 else f"with exit code {code}"


def free_port() -> int:
    """Return a port of loopback on which nothing listens now."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return a text without the given keys, and without anything that looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MARK.format("an API key"))
    return redact(text)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without API keys; only this process uses the server, which needs none."""
    return {name: value for name, value in environ.items() if name not in (*NAMES, *_KEYS_OF_SERVERS)}


def _status(port: int, path: str) -> int | None:
    """Return the status of a GET, None without a reply."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


SLOTS: Final = 4
"""The texts that llama-server generates at once, each with its own context."""

MOST_CONTEXT: Final = 8192
"""The default tokens of a context, unless ``--eval-seq-len`` is given; its memory is allocated at the start."""


@dataclass(frozen=True, slots=True)
class ServerStart:
    """The model of a server to start, and its options.

    ``path`` is a path or Hub id; ``local`` the checkpoint there, None if only the server can find it.
    """

    path: str
    local: CheckpointInfo | None
    seq_len: int | None
    dtype: str | None

    @property
    def context(self) -> int | None:
        """The context length for a server that must know it at its start; None if unknown."""
        if self.seq_len is not None or self.local is None:
            return self.seq_len
        return min(self.local.seq_len, MOST_CONTEXT)

    def options(self, length: str) -> tuple[str, ...]:
        """Return the options that are set; ``length`` is the server's name for the context length."""
        names = {length: self.seq_len, "--dtype": self.dtype}
        return tuple(str(word) for pair in names.items() if pair[1] is not None for word in pair)


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """The command of a server, without host and port.

    ``what`` names the server, ``version`` is its version if the server does not report one.
    """

    what: str
    arguments: tuple[str, ...]
    version: str = ""


def vllm_command(start: ServerStart) -> ServerCommand:
    """Return the command that starts vLLM. Raises ``CheckpointError`` if vLLM is not installed."""
    program = shutil.which("vllm")
    if program is None:
        raise CheckpointError(
            "no vllm on PATH; install it (pip install vllm), in an environment of its own if need be, whose bin "
            "folder you put at the end of PATH"
        )
    return ServerCommand("vllm", (program, "serve", start.path, *start.options("--max-model-len")))


def sglang_command(start: ServerStart) -> ServerCommand:
    """Return the command that starts SGLang. Raises ``CheckpointError`` if SGLang is not installed."""
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

    Raises ``CheckpointError`` if neither is installed, the model is not a GGUF file, or a dtype is demanded.
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
    """The checkpoint format of models at servers that this process starts; the engine ``http`` queries them."""

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
        """Start the server of a model and describe it. Raises ``CheckpointError`` if it does not start."""
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
    """Return the checkpoint that a name means, and the path for the server.

    The checkpoint is None for a file or folder that only the server may understand.
    """
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
    return _with_weights_path(info, command, start, redact_value(arguments))


def _tokenizer(start: ServerStart) -> str | None:
    """Return the path of the model's tokenizer; None if only the server can read it."""
    if start.local is not None and start.local.format == "gguf":
        header = read_gguf(start.local.path)
        try:
            tokenizer_of(start.local.path, header.architecture, header.keys)
        except CheckpointError:
            return None
    return None if start.local is None else start.path


def _with_weights_path(
    info: CheckpointInfo, command: ServerCommand, start: ServerStart, arguments: list[str]
) -> CheckpointInfo:
    """Return the checkpoint with the path of its weights, since the address changes each time."""
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
        engine_facts={"served": served},
    )


def _find_pythons() -> Iterator[str]:
    """Yield this Python, then those on PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    pythons = (shutil.which(name, path=folder) for folder in folders for name in ("python3", "python"))
    yield from dict.fromkeys((sys.executable, *filter(None, pythons)))


def _installed_version(python: str, distribution: str, *modules: str) -> str | None:
    """Return the version of a distribution in a Python that has all these modules, else None."""
    code = (
        "import importlib.metadata as m, importlib.util as u; "
        f"assert all(map(u.find_spec, {modules!r})); print(m.version({distribution!r}))"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
