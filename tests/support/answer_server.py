"""A server of texts that answers arithmetic by the rows' own answers: ``python answer_server.py ROWS --wrong 0.1``.

It needs the standard library alone. A share of the questions is answered wrongly for good (``--wrong``), another at
random (``--noise``); ``--seconds`` is how long a text takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answers = Mapping[str, str]


class AnswerServer(ThreadingHTTPServer):
    request_queue_size = 1024  # a longer queue than the client's: connections beyond it wait for seconds


def share_of(text: str) -> float:
    """A number from 0 to 1 that a text always has."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8


def read_answers(rows: Path) -> dict[str, str]:
    """The answers by question."""
    parsed = map(json.loads, rows.read_text(encoding="utf-8").splitlines())
    return {row["question"]: str(row["answer"]) for row in parsed}


@contextmanager
def answer_server(
    answers: Answers, *, wrong: float = 0.0, noise: float = 0.0, seconds: float = 0.0, name: str = "adder"
) -> Iterator[str]:
    """The address of the server while it runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            known = self.path == "/v1/models"
            self.reply({"data": [{"id": name, "max_model_len": 4096}]} if known else None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = body.get("prompt")
            if self.path != "/v1/completions" or not isinstance(prompt, str):
                return self.reply(None)
            question = next((text for text in answers if prompt.rstrip().endswith(text)), None)
            question = question or next((text for text in answers if text in prompt[-len(text) - 40 :]), "")
            text = answers.get(question, "nothing")
            if question:
                time.sleep(seconds)
            if question and (share_of(question) < wrong or random.random() < noise):
                text = f"not {text}0"
            usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 1}
            return self.reply(
                {"choices": [{"index": 0, "text": f" {text}\n", "finish_reason": "stop"}], "usage": usage}
            )

        def reply(self, content: Any) -> None:
            data = json.dumps({"error": "none such"} if content is None else content).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = AnswerServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    """Serve until the process is ended; print the address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path)
    for option in ("wrong", "noise", "seconds"):
        parser.add_argument(f"--{option}", type=float, default=0.0)
    options = vars(parser.parse_args())
    with answer_server(read_answers(options.pop("rows")), **options) as address:
        print(address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
