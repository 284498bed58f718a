"""A server as a child of this process: started, waited for, and ended whatever happens.

Between the two stands ``guard``, which ends the server when this process closes a pipe or dies, and all that the server
has started with it. Ctrl-C in a terminal does not reach them: the answers under way are waited for first.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pytest_touchstone.checkpoints.formats.base import Lasting
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.keys import MARK, masked, values_of_keys
from pytest_touchstone.core.text import one_line
from pytest_touchstone.engines.http import guard
from pytest_touchstone.engines.http.keys import NAMES

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


class Child:
    """A server that was started; ``what`` names it in messages, ``log`` has all that it says."""

    def __init__(self, what: str, command: Sequence[str], port: int) -> None:
        self._what, self.port = what, port
        self._secrets = tuple(values_of_keys(command))
        descriptor, name = tempfile.mkstemp(prefix=f"touchstone-{what}-", suffix=".log")
        self.log = Path(name)
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=subprocess.STDOUT,
                env=_environment(os.environ),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        self._failed = False

    def wait(self, lasting: Lasting, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers. Raises ``CheckpointError`` with its last words where it ends before, or does
        not in that many seconds."""
        began, told = time.monotonic(), False
        while not self._answers():
            if self._guard.poll() is not None:
                self._failed = True
                raise CheckpointError(
                    f"{self._what} ended with exit code {self._guard.returncode} before it answered; its last words: "
                    f"{self._last_words()}"
                )
            waited = time.monotonic() - began
            if waited > seconds:
                self._failed = True
                raise CheckpointError(
                    f"{self._what} does not answer {seconds:.0f} s after its start; its last words: "
                    f"{self._last_words()}"
                )
            if waited > SILENT_SECONDS and not told:
                told = True
                lasting.say(f"{self._what} is starting; its log: {self.log}")
            time.sleep(_LOOK_EVERY)

    def end(self, lasting: Lasting) -> None:
        """End the server, and all that it has started. Its log goes to the run's folder, if there is one."""
        code = self._guard.poll()
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # the guard goes on by itself
            self._guard.wait(guard.GRACE + _ASK_SECONDS)
        folder = lasting.logs
        if folder is not None and folder.is_dir():
            with suppress(OSError):
                self.log = self._kept(folder / f"{self._what}-{self.port}.log")
        elif code is None and not self._failed:
            self.log.unlink(missing_ok=True)
        else:
            with suppress(OSError):
                self._kept(self.log)
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

    def _kept(self, target: Path) -> Path:
        """Move the log without its keys; return where it is."""
        written = target.with_suffix(".part")
        with (
            self.log.open(encoding="utf-8", errors="replace") as log,
            written.open("w", encoding="utf-8") as kept,
        ):
            kept.writelines(without_secrets(line, self._secrets) for line in log)
        self.log.unlink()
        return written.replace(target)

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


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without keys: the server is asked by this process alone, and needs none."""
    return {name: value for name, value in given.items() if name not in (*NAMES, *_KEYS_OF_SERVERS)}


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
