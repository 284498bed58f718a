"""A server like vLLM's, as a program of its own that starts at once: ``small_server.py serve MODEL --port N``.

Its model gives every token the same probability wherever it stands. It has a helper, which sleeps, as servers have.
What it was told goes to the file ``SMALL_SERVER_NOTES``. ``SMALL_SERVER_FAULT`` is what is wrong with it: ``dies`` and
``hangs`` at the start, ``stubborn`` against being ended.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def logprob(token: int) -> float:
    return -1.0 - token % 7


def completed(body: dict[str, Any]) -> dict[str, Any]:
    prompt = list(body["prompt"].encode()) if isinstance(body["prompt"], str) else body["prompt"]
    new = [7] * body["max_tokens"]
    names = [f"token_id:{token}" for token in new]
    wanted = body.get("logprob_token_ids", [])
    tops = [{f"token_id:{token}": logprob(token) for token in (7, *wanted)} for _ in new]
    choice = {
        "text": "." * len(new),
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": new,
        "logprobs": {"tokens": names, "token_logprobs": [logprob(7)] * len(new), "top_logprobs": tops},
        "prompt_logprobs": [
            None,
            *({str(token): {"logprob": logprob(token), "rank": 1 + token % 7}} for token in prompt[1:]),
        ],
    }
    return {
        "model": body["model"],
        "choices": [{"index": number, **choice} for number in range(body.get("n", 1))],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(new)},
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the client to acknowledge the headers
    model = ""

    def do_GET(self) -> None:
        known = {
            "/v1/models": {"data": [{"id": self.model, "owned_by": "vllm", "max_model_len": 4096}]},
            "/version": {"version": "0.1"},
            "/health": {},
        }
        self._reply(200 if self.path in known else 404, known.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._reply(200, {"tokens": list(body["prompt"].encode())})
        elif self.path == "/v1/completions":
            self._reply(200, completed(body))
        else:
            self._reply(404, None)

    def _reply(self, status: int, found: Any) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(arguments: list[str]) -> None:
    fault = os.environ.get("SMALL_SERVER_FAULT")
    print("loading the model", flush=True)
    if fault == "dies":
        print("\x1b[31mRuntimeError: not enough memory\x1b[0m")
        sys.exit(3)
    if fault == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen(["sleep", "600"], start_new_session=fault == "stubborn")
    notes = {
        "pids": [os.getpid(), helper.pid],
        "arguments": arguments,
        "keys": os.environ.get("OPENAI_API_KEY"),
    }
    with Path(os.environ["SMALL_SERVER_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(notes) + "\n")
    if fault == "hangs":
        time.sleep(600)
    Handler.model = arguments[arguments.index("serve") + 1]
    port = int(arguments[arguments.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever(0.05)


def install(folder: Path, name: str) -> Path:
    """Put the server into a folder of programs under a name; return the file with its notes."""
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} "$@"\n', encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder / "notes.jsonl"


def starts(notes: Path) -> list[dict[str, Any]]:
    """Return the notes of each start."""
    if not notes.exists():
        return []
    return [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]


def gone(pids: list[int], seconds: float = 30.0) -> bool:
    """Return whether processes end within some seconds."""
    end = time.monotonic() + seconds
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
