"""Replies of real servers, recorded once and given again: ``python -m tests.support.recorded URL FILE MODEL``.

The questions are those of a probe and of a few requests. MODEL is the path of the server's model, which the recording
calls ``/models/NAME``. What it was not asked then a recorded server does not answer: record it anew.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.core.requests import Answer, Generate, Loglikelihood, Refusal, Request, Turn
from pytest_touchstone.engines.http.calls import CallFailure, CallReply, MalformedReplyError
from pytest_touchstone.engines.http.engine import canary_requests, served_checkpoint
from pytest_touchstone.engines.http.planning import Planner
from pytest_touchstone.engines.http.probe import METRICS, Probe
from pytest_touchstone.engines.http.server import parse_address
from pytest_touchstone.engines.http.tokens import tokenizer_by_name
from pytest_touchstone.engines.settings import ModelSettings

FOLDER = Path(__file__).parents[1] / "engines" / "http" / "recorded"

Ask = Callable[[str, Mapping[str, Any] | None], Any]

SCORES: tuple[Request, ...] = (
    *(Loglikelihood("Which is a fruit?\nA. apple\nB. stone\nAnswer:", f" {letter}") for letter in "AB"),
    Loglikelihood("The capital of France is", " Paris, which is a large city."),
)
TEXTS: tuple[Request, ...] = (
    Generate("The capital of France is", max_new_tokens=12, stop=("\n",)),
    Generate("2 + 2 =", max_new_tokens=6, turns=(Turn("user", "What is 2 + 2?"),)),
)


class RecordedServer:
    """A server that gives its recorded replies."""

    def __init__(self, name: str, rows: Sequence[Mapping[str, Any]] | None = None) -> None:
        """``rows`` are in place of those of the file."""
        if rows is None:
            rows = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        self._rows = {_key(row["path"], row["body"]): row for row in rows}

    def ask(self, path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        row = self._rows.get(_key(path, body))
        assert row is not None, f"{path} was not asked so when it was recorded: {body}"
        return _end(row)


def probed(ask: Ask) -> CheckpointInfo:
    """What a probe finds."""
    address = parse_address("http://h:8000")
    return served_checkpoint(address, Probe(address, ask).run(None, None), CheckpointRequest("http://h:8000"))


def answers(info: CheckpointInfo, ask: Ask, requests: tuple[Request, ...]) -> list[Answer | Refusal]:
    """Answers to requests, as the engine makes them."""
    planned = _planner(info, ask).plan(requests)
    found: dict[int, Answer | Refusal] = dict(planned.ready)
    for number, call in enumerate(planned.calls):
        said = ask(call.path, call.body)
        end: CallReply[Any] | CallFailure = (
            said if isinstance(said, CallFailure) else CallReply(call.read(said))
        )
        found.update(planned.take(number, end))
    return [found[number] for number in range(len(requests))]


def _planner(info: CheckpointInfo, ask: Ask) -> Planner:
    def remote(path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        found = [ask(path, body) for body in bodies]
        return [None if isinstance(said, CallFailure) else said for said in found]

    name = info.served["tokenizer"]
    return Planner(info, ModelSettings(), None if name is None else tokenizer_by_name(name, remote))


def _key(path: str, body: Mapping[str, Any] | None) -> str:
    return json.dumps([path, body], sort_keys=True)


def _end(row: Mapping[str, Any]) -> Any | CallFailure:
    if row["status"] == 200:
        return row["reply"]
    said = json.dumps(row["reply"])
    return CallFailure(f"HTTP {row['status']}; the server says: {said}", "refused", row["status"], said)


def record(url: str, file: Path, model: str) -> None:
    """Ask a server, and write what it says."""
    rows: dict[str, dict[str, Any]] = {}
    neutral = f"/models/{Path(model).name}"

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        data = None if body is None else json.dumps(body).replace(neutral, model).encode()
        request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as reply:
                status, text = 200, reply.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        text = text.replace(model, neutral)
        if path == METRICS:
            said = "\n".join(line for line in text.splitlines() if "cache_config_info" in line)
        else:
            said = json.loads(text)
        row = rows[_key(path, body)] = {"path": path, "body": body, "status": status, "reply": said}
        return _end(row)

    info = probed(ask)
    for requests in (SCORES, TEXTS, canary_requests(info.serves)):
        try:
            print(answers(info, ask, requests))
        except MalformedReplyError as error:
            print(error)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows.values())
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
