"""A server of models on this machine whose answers are known, and which fails on purpose.

Its model is arithmetic: ``logprob`` and ``text_of`` say what a right answer is. It speaks the completions and the
chat of OpenAI. Each attempt at a question draws a fault, or none, by the seed, the question and the number of the
attempt, so that faults do not depend on the order in which questions come.

``scripted`` is a server without a model: it sends the bytes that it is told to.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import socket
import socketserver
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from random import Random
from time import time
from typing import Any, Final

MODEL: Final = "arithmetic-1"
OTHER_MODEL: Final = "arithmetic-2"

WEIGHTS: Final[Mapping[str, int]] = {
    "429": 10,
    "429 seconds": 10,
    "429 long": 2,
    "400": 2,
    "500": 10,
    "502": 10,
    "503 seconds": 5,
    "529": 3,
    "reset": 10,
    "reset within": 10,
    "slow": 2,
    "truncated": 10,
    "no json": 5,
    "wrong types": 10,
    "null content": 10,
    "no choices": 10,
    "no logprobs": 10,
    "zero logprobs": 10,
    "off by one": 10,
    "doubled start": 10,
    "other model": 10,
}
"""The faults, and how often each is drawn among them."""

LONG_WAIT: Final = 10_000_000
"""The seconds of a ``Retry-After`` beyond every deadline."""


def logprob(ids: Sequence[int], place: int, model: str = MODEL) -> float:
    """The log-probability of the token at a place, after those before it."""
    told = f"{model}:{list(ids[: place + 1])}".encode()
    return -round(0.01 + int(hashlib.md5(told, usedforsecurity=False).hexdigest()[:6], 16) / 4e6, 6)


def text_of(prompt: object, model: str = MODEL) -> str:
    """The text that the model continues a prompt with: one for each prompt."""
    return (
        "it is "
        + hashlib.md5(
            f"{model}:{prompt}".encode("utf-8", "backslashreplace"), usedforsecurity=False
        ).hexdigest()[:8]
    )


@dataclass(slots=True)
class Drop:
    """The end of a connection in place of a reply, after ``sent`` bytes of it."""

    sent: bytes = b""


@dataclass(slots=True)
class FaultServer:
    """``with FaultServer(...) as server``: it answers at ``server.base`` until the end.

    ``rate`` is the share of attempts that fail. ``always`` is the fault of every attempt, or a function from the body
    and the number of the attempt to one. ``delay`` is the seconds before each reply; ``slow_seconds`` those that a
    slow reply takes. ``key`` is the only one that is let in, ``redirect`` the place that everything is sent to.
    ``replies`` has the status and content of faults of one's own, and ``extra`` headers.
    """

    rate: float = 0.0
    seed: int = 0
    always: str | Callable[[Any, int], str | None] | None = None
    delay: float = 0.0
    slow_seconds: float = 5.0
    key: str | None = None
    redirect: str | None = None
    replies: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    headers: list[dict[str, str]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    connections: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _socket: socket.socket | None = None
    _connecting: set[asyncio.Task[None]] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    def __enter__(self) -> FaultServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self.vanish()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self) -> None:
        """Begin to answer: at the port that it had before, if any."""
        assert self._loop is not None
        port = int(self.base.rpartition(":")[2]) if self.base else 0
        # Not asyncio's own server: closed while it accepts, it leaves connections open (CPython 3.11).
        self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._socket.setblocking(False)
        self.base = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._socket, self._accept)

    def vanish(self) -> None:
        """Stop to listen, and break off every connection."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._vanish(), self._loop).result()

    async def _vanish(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        while self._connecting or self._serving:
            for task in self._serving:
                task.cancel()
            await asyncio.sleep(0.001)

    def _accept(self) -> None:
        assert self._socket is not None
        with suppress(BlockingIOError):
            found, _ = self._socket.accept()
            found.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._serve(found))
            self._connecting.add(task)

    async def _serve(self, found: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=found)
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._connecting.discard(task)
        self._serving.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ", 2)
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.headers.append({"path": path, **headers})
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    if not await self._reply(writer, method, path, headers, body):
                        return
                finally:
                    self.under_way -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _reply(
        self, writer: asyncio.StreamWriter, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> bool:
        """Answer a request; return whether the connection goes on."""
        if self.delay:
            await asyncio.sleep(self.delay)
        if (at_once := self._before_asking(method, path, headers)) is not None:
            writer.write(at_once)
            return True
        asked = json.loads(body)
        fault = self._fault(asked)
        if fault is not None and fault in self.replies:
            status, content = self.replies[fault]
            answer: bytes | Drop = reply(content, status)
        else:
            answer = answered(path, asked, fault, self.extra)
        if isinstance(answer, Drop):
            writer.write(answer.sent)
            await asyncio.sleep(0)
            # Without lingering, closing sends a reset.
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            return False
        if fault == "slow":
            for byte in answer:
                if writer.is_closing():
                    return False
                writer.write(bytes([byte]))
                await asyncio.sleep(self.slow_seconds / len(answer))
            return True
        writer.write(answer)
        await writer.drain()
        return True

    def _before_asking(self, method: str, path: str, headers: Mapping[str, str]) -> bytes | None:
        """The reply to a request that is no question, None where it is one."""
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            told = {"error": {"message": f"Incorrect API key provided: {headers.get('authorization')}"}}
            return reply(told, 401)
        if self.redirect is not None:
            return reply({}, 307, location=self.redirect)
        if method == "POST":
            return None
        known = {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 4096}]}
        return reply(known) if path == "/v1/models" else reply({"detail": "Not Found"}, 404)

    def _fault(self, asked: Any) -> str | None:
        told = json.dumps(asked, sort_keys=True)
        attempt = self.asked[told]
        self.asked[told] += 1
        if callable(self.always):
            fault = self.always(asked, attempt)
        elif self.always is not None:
            fault = self.always
        else:
            drawn = Random(f"{self.seed}:{attempt}:{told}")
            fault = (
                drawn.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                if drawn.random() < self.rate
                else None
            )
        if fault is not None:
            self.faults[fault] += 1
        return fault


def reply(content: object, status: int = 200, /, **headers: str) -> bytes:
    """A reply as bytes; content that is bytes is sent as it is."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
    told = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode() + body


def answered(path: str, asked: Any, fault: str | None, headers: Mapping[str, str]) -> bytes | Drop:
    """The reply to a question, with the fault."""
    now = formatdate(time(), usegmt=True)
    soon = formatdate(time() + 1, usegmt=True)
    refusals: dict[str, bytes | Drop] = {
        "429": reply({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429),
        "429 seconds": reply({"error": {"message": "slow down"}}, 429, retry_after="0.02"),
        "429 date": reply({"error": {"message": "slow down"}}, 429, retry_after=soon, date=now),
        "429 long": reply({"error": {"message": "tomorrow"}}, 429, retry_after=str(LONG_WAIT)),
        "400": reply({"object": "error", "message": "too long for this model"}, 400),
        "500": reply(b"Internal Server Error", 500),
        "502": reply(b"<html>Bad Gateway</html>", 502),
        "503 seconds": reply({"detail": "loading"}, 503, retry_after="0.02"),
        "529": reply({"detail": "overloaded"}, 529),
        "reset": Drop(),
        "no json": reply(b"<html>hello</html>"),
    }
    if fault is not None and fault in refusals:
        return refusals[fault]
    found = sound(path, asked, OTHER_MODEL if fault == "other model" else MODEL)
    spoil(found, fault)
    whole = reply(found, **headers)
    if fault == "reset within":
        return Drop(whole[: len(whole) - 20])
    if fault == "truncated":
        return reply(json.dumps(found).encode()[:-20])
    return whole


def sound(path: str, asked: Any, model: str) -> dict[str, Any]:
    """The right answer of a model."""
    about = {"id": "1", "object": "text_completion", "model": model, "system_fingerprint": f"fp_{model}"}
    if path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": text_of(asked["messages"], model)}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
        return {**about, "choices": [choice], "usage": {"prompt_tokens": 8, "completion_tokens": 4}}
    prompt = asked["prompt"]
    if not asked.get("echo"):
        choice = {"index": 0, "text": text_of(prompt, model), "finish_reason": "stop", "logprobs": None}
        return {
            **about,
            "choices": [choice],
            "usage": {"prompt_tokens": max(8, len(prompt)), "completion_tokens": 4},
        }
    values = [None, *(logprob(prompt, place, model) for place in range(1, len(prompt)))]
    told = {"tokens": [f"<{one}>" for one in prompt], "token_logprobs": values}
    choice = {
        "index": 0,
        "text": "".join(f"<{one}>" for one in prompt),
        "finish_reason": "length",
        "logprobs": told,
    }
    return {**about, "choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": 0}}


def spoil(found: dict[str, Any], fault: str | None) -> None:
    """Change an answer in place as a fault does, where it concerns this kind of answer."""
    choice = found["choices"][0]
    told = choice.get("logprobs")
    values = told["token_logprobs"] if told else None
    if fault == "wrong types":
        found["choices"] = {"text": 7}
    elif fault == "null content":
        choice["message" if "message" in choice else "text"] = None
        choice["logprobs"] = None
    elif fault == "no choices":
        found["choices"] = []
    elif fault == "no logprobs":
        choice["logprobs"] = None
    elif fault == "zero logprobs" and values:
        told["token_logprobs"] = [0.0 for _ in values]
    elif fault == "off by one" and values:
        told["token_logprobs"] = values[:-1]
        told["tokens"].pop()
    elif fault == "doubled start" and values:
        told["token_logprobs"] = [None, math.log(0.5), *values[1:]]
        told["tokens"] = [told["tokens"][0], *told["tokens"]]
        found["usage"]["prompt_tokens"] += 1


@dataclass(slots=True)
class Scripted:
    """A server that sends the next of its replies to each request; an empty one after a reply ends the connection."""

    replies: list[bytes]
    base: str = ""
    connections: int = 0
    asked: list[bytes] = field(default_factory=list)

    def serve(self, request: socketserver.StreamRequestHandler) -> None:
        self.connections += 1
        while head := request.rfile.readline():
            lines = [head]
            while (line := request.rfile.readline()) not in (b"\r\n", b""):
                lines.append(line)
            told = dict(line.lower().rstrip().split(b": ", 1) for line in lines[1:])
            self.asked.append(b"".join(lines) + request.rfile.read(int(told.get(b"content-length", 0))))
            request.wfile.write(self.replies.pop(0))
            if self.replies and not self.replies[0]:
                self.replies.pop(0)
                return


@contextmanager
def scripted(*replies: bytes) -> Iterator[Scripted]:
    found = Scripted(list(replies))

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            found.serve(self)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.base = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
