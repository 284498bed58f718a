"""The cost of asking a served model: throughput, CPU per request and memory, against a stub that answers after 50 ms.

python -m perf http_client [--concurrency 8 64 256] [--seconds 8] [--memory 100000] [--libraries] [--json FILE]

The stub is a process of its own, as lean as can be. Its CPU is given apart: where stub and client together fill the
cores, it is the machine that is measured. ``--libraries`` asks it with bare aiohttp and bare httpx2 too, which says
what of the cost is theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perf.measure import ROOT, table
from pytest_touchstone.engines.http.calls import Call, CallLimits, CallReply, Failure
from pytest_touchstone.engines.http.server import Key
from pytest_touchstone.engines.http.transport import HttpTransport

DELAY = 0.05
"""The seconds after which the stub answers."""

PROMPT = list(range(1000, 1400))
"""Token ids of a prompt, about as many as a five-shot question has."""

STUB = """
import asyncio, json, sys

CHOICE = {"index": 0, "text": "", "finish_reason": "length", "logprobs": {
    "tokens": ["token"] * 400, "token_logprobs": [None] + [-1.2345] * 399, "text_offset": [], "top_logprobs": None}}
BODY = json.dumps({"id": "1", "object": "text_completion", "model": "stub", "choices": [CHOICE],
                   "usage": {"prompt_tokens": 400, "completion_tokens": 0}}).encode()
REPLY = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY) + BODY


class Stub(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.left, self.head = transport, 0, b""

    def data_received(self, data):
        if not self.left:
            head, found, rest = (self.head + data).partition(b"\\r\\n\\r\\n")
            if not found:
                self.head = head
                return
            self.head, lowered = b"", head.lower()
            begin = lowered.index(b"content-length: ") + 16
            self.left = int(lowered[begin:].split(b"\\r\\n", 1)[0])
            data = rest
        self.left -= len(data)
        if not self.left:
            loop.call_later(float(sys.argv[1]), self.answer)

    def answer(self):
        if not self.transport.is_closing():
            self.transport.write(REPLY)


loop = asyncio.new_event_loop()
server = loop.run_until_complete(loop.create_server(Stub, "127.0.0.1", 0, backlog=1024))
print(server.sockets[0].getsockname()[1], flush=True)
loop.run_forever()
"""


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8, 64, 256], metavar="N")
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of asking, for each of them")
    parser.add_argument("--memory", type=int, default=100_000, metavar="N", help="requests; 0: not measured")
    parser.add_argument("--libraries", action="store_true", help="bare aiohttp and httpx2 too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    found: dict[str, Any] = {"throughput": []}
    with stub(DELAY) as (base, process):
        for concurrency in options.concurrency:
            count = int(options.seconds * concurrency / DELAY)
            found["throughput"].append(_with_stub(process, ours, base, concurrency, count))
            if options.libraries:
                row = _with_stub(process, bare, "bare aiohttp", with_aiohttp, base, concurrency, count // 2)
                found["throughput"].append(row)
        if options.libraries:
            count = int(options.seconds * 64 / DELAY / 2)
            found["throughput"].append(_with_stub(process, bare, "bare httpx2", with_httpx2, base, 64, count))
    header = ["client", "concurrency", "requests", "per second", "of possible", "CPU ms/request", "stub's"]
    rows = [
        [
            one["client"],
            one["concurrency"],
            one["requests"],
            f"{one['rate']:.0f}",
            f"{one['share']:.1%}",
            f"{one['cpu_ms']:.3f}",
            f"{one['stub_ms']:.3f}",
        ]
        for one in found["throughput"]
    ]
    print(table(header, rows))
    if options.memory:
        with stub(0.001) as (base, _):
            found["memory"] = memory(base, options.memory)
        print(table(["requests", "memory MiB"], [[count, f"{size:.1f}"] for count, size in found["memory"]]))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


@contextmanager
def stub(delay: float) -> Iterator[tuple[str, int]]:
    """Start the stub; return its address and its process."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUB, str(delay)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process.pid
    finally:
        process.kill()
        process.wait()


def calls(count: int) -> list[Call[Any]]:
    """Return calls for the log-probabilities of prompts that differ."""

    def read(found: Any) -> float:
        return float(sum(found["choices"][0]["logprobs"]["token_logprobs"][1:]))

    return [
        Call(
            "/v1/completions",
            {"model": "stub", "prompt": [number, *PROMPT], "echo": True, "logprobs": 1, "max_tokens": 0},
            read,
            number,
        )
        for number in range(count)
    ]


def _with_stub(process: int, measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return a row with the CPU that the stub took meanwhile."""
    before = _cpu_of(process)
    row = measure(*arguments)
    return row | {"stub_ms": round(1000 * (_cpu_of(process) - before) / row["requests"], 3)}


def _cpu_of(process: int) -> float:
    """Return the seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc_pid_stat(5)


def ours(base: str, concurrency: int, count: int) -> dict[str, Any]:
    """Ask through ``HttpTransport``; the limit has risen to its most before the clock starts."""
    transport = HttpTransport(base, CallLimits(concurrency_most=concurrency), Key())
    asked: list[Call[Any]] = calls(count)
    failed: list[str] = []

    def done(_: int, end: CallReply[Any] | Failure) -> None:
        if isinstance(end, Failure):
            failed.append(end.reason)

    try:
        transport.run(asked[: 8 * concurrency], done)
        cpu, wall = time.process_time(), time.perf_counter()
        transport.run(asked, done)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    finally:
        transport.close()
    if failed:
        raise SystemExit(f"{len(failed)} calls failed: {failed[0]}")
    return _row("ours", concurrency, count, wall, cpu)


def bare(
    name: str, ask: Callable[..., Awaitable[None]], base: str, concurrency: int, count: int
) -> dict[str, Any]:
    """Ask with a library alone: as many workers as may be under way, each one request after the other."""
    bodies = [json.dumps(call.body).encode() for call in calls(count)]
    cpu, wall = time.process_time(), time.perf_counter()
    asyncio.run(ask(f"{base}/v1/completions", bodies, concurrency))  # type: ignore[arg-type]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return _row(name, concurrency, count, wall, cpu)


def _row(name: str, concurrency: int, count: int, wall: float, cpu: float) -> dict[str, Any]:
    rate = count / wall
    return {
        "client": name,
        "concurrency": concurrency,
        "requests": count,
        "rate": rate,
        "share": rate * DELAY / concurrency,
        "cpu_ms": round(1000 * cpu / count, 3),
    }


async def with_aiohttp(url: str, bodies: list[bytes], concurrency: int) -> None:
    """Ask with aiohttp."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker() -> None:
            while bodies:
                async with session.post(url, data=bodies.pop()) as response:
                    json.loads(await response.read())

        await asyncio.gather(*(worker() for _ in range(concurrency)))


async def with_httpx2(url: str, bodies: list[bytes], concurrency: int) -> None:
    """Ask with httpx2."""
    import httpx2

    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx2.AsyncClient(limits=limits) as client:

        async def worker() -> None:
            while bodies:
                json.loads((await client.post(url, content=bodies.pop())).content)

        await asyncio.gather(*(worker() for _ in range(concurrency)))


def memory(base: str, count: int) -> list[tuple[int, float]]:
    """Return the memory of this process after each tenth of the requests."""
    transport = HttpTransport(base, CallLimits(concurrency_most=64), Key())
    asked = calls(1000)
    sizes: list[tuple[int, float]] = []
    try:
        for number in range(1, count // len(asked) + 1):
            transport.run(asked, lambda *_: None)
            if number % max(1, count // len(asked) // 10) == 0:
                sizes.append((number * len(asked), _resident()))
    finally:
        transport.close()
    return sizes


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
