"""Servers with an API like OpenAI's on loopback, with a tiny model behind them.

``ModelServer`` has replies with the fields that vLLM 0.32 and llama.cpp document. Its model computes each sequence by
itself, with nothing of ours in between, so that scores through the server can be held against those of this process.

``model_server.py serve MODEL --port N`` is a program like ``vllm`` that starts at once, by the standard library alone.
Its model gives every token the same probability wherever it stands. It has a helper, which sleeps, as servers have.
What it was told goes to the file ``MODEL_SERVER_NOTES``. ``MODEL_SERVER_FAULT`` is what is wrong with it: ``dies`` and
``hangs`` at the start, ``stubborn`` against being ended.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pytest_touchstone.engines.http.calls import CallFailure

Style = Literal["vllm", "openai", "llama.cpp"]


class PatientServer(ThreadingHTTPServer):
    """A server that lets all calls of a client connect at once: others would be tried again after seconds."""

    request_queue_size = 1024


class ApiError(Exception):
    """A request that the server refuses."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class ModelServer:
    """What the server does. ``bodies`` has the path and body of each POST, ``gets`` the path of each GET, ``headers``
    those of each request.

    ``more_start`` puts a beginning-of-sequence token before every prompt; ``zeros`` reports all log-probabilities as 0;
    ``shift`` is added to every log-probability of a prompt; ``silent`` gives texts as null, at the limit. After
    ``wanders`` requests it has another model, after ``leaks`` it refuses all, repeating the key,
    and after ``dies`` it breaks every connection. It tells of a prefix cache with blocks of ``block`` tokens, and
    of ``batch_invariant``.
    """

    folder: Path
    style: Style = "vllm"
    name: str = "tiny"
    names: tuple[str, ...] = ()
    limit: int = 128
    fingerprint: str | None = "fp-1"
    version: str = "0.32.0"
    more_start: bool = False
    zeros: bool = False
    shift: float = 0.0
    silent: bool = False
    wanders: int | None = None
    leaks: int | None = None
    dies: int | None = None
    root: bool = True
    block: int | None = None
    batch_invariant: Any = None
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(self.folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        self.lock = threading.Lock()

    # What is asked

    def get(self, path: str) -> Any:
        self.gets.append(path)
        if path == "/v1/models":
            owner = {"vllm": "vllm", "openai": "openai", "llama.cpp": "llamacpp"}[self.style]
            rows: list[dict[str, Any]] = [
                {"id": name, "object": "model", "owned_by": owner} for name in self.names or (self.name,)
            ]
            if self.style == "vllm":
                root = {"root": str(self.folder)} if self.root else {}
                rows = [{**row, **root, "max_model_len": self.limit} for row in rows]
            return {"object": "list", "data": rows}
        if path == "/version" and self.style == "vllm":
            return {"version": self.version}
        if path == "/server_info" and self.batch_invariant is not None:
            return {"vllm_config": "", "vllm_env": {"VLLM_BATCH_INVARIANT": self.batch_invariant}}
        if path == "/metrics" and self.block:
            return (
                "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
                f'vllm:cache_config_info{{block_size="{self.block}",enable_prefix_caching="True",engine="0"}} 1.0\n'
            )
        if path == "/props" and self.style == "llama.cpp":
            return {"build_info": "b6000-abc", "default_generation_settings": {"n_ctx": self.limit}}
        raise ApiError(404, "Not Found")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        self.bodies.append((path, body))
        if self.leaks is not None and len(self.bodies) > self.leaks:
            raise ApiError(401, f"Incorrect API key provided: {self.headers[-1].get('Authorization')}")
        if path == "/tokenize" and self.style != "openai":
            text = body.get("prompt", body.get("content"))
            special = body.get("add_special_tokens", body.get("add_special", True))
            return {"tokens": self.tokenizer.encode(text, add_special_tokens=special)}
        if body.get("model") not in (self.names or (self.name,)):
            raise ApiError(404, f"The model `{body.get('model')}` does not exist.")
        if path == "/v1/completions":
            return self._completions(body)
        if path == "/v1/chat/completions":
            return self._chat(body)
        raise ApiError(404, "Not Found")

    def _chat(self, body: dict[str, Any]) -> Any:
        if not self.tokenizer.chat_template:
            raise ApiError(400, "default chat template is no longer allowed")
        begun = body.get("continue_final_message", False)
        text = self.tokenizer.apply_chat_template(
            body["messages"],
            tokenize=False,
            add_generation_prompt=body.get("add_generation_prompt", True),
            continue_final_message=begun,
        )
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        reply = self._completed(ids, {**body, "max_tokens": body.get("max_tokens", 16)})
        for choice in reply["choices"]:
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        return reply | {"object": "chat.completion"}

    def _completions(self, body: dict[str, Any]) -> Any:
        prompt = body["prompt"]
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        return self._completed(ids, body)

    # What is computed

    def _completed(self, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        if self.more_start:
            ids = [self.tokenizer.bos_token_id, *ids]
        new = body.get("max_tokens", 16)
        if max(ids) >= self.model.get_input_embeddings().weight.shape[0]:
            raise ApiError(400, f"Token id {max(ids)} is out of vocabulary")
        if len(ids) + max(new, 1) > self.limit:
            raise ApiError(
                400, f"This model's maximum context length is {self.limit} tokens, and you sent {len(ids)}"
            )
        if self.style == "openai" and len(body.get("stop", ())) > 4:
            raise ApiError(400, "stop: at most 4 sequences")
        count = body.get("n", 1) if self.style != "llama.cpp" else 1
        choices = [self._choice(ids, body, new, number) for number in range(count)]
        told = [choice.pop("generated") for choice in choices]
        reply = {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": number, **choice} for number, choice in enumerate(choices)],
            "usage": {"prompt_tokens": len(ids), "completion_tokens": sum(told)},
        }
        return reply | ({"system_fingerprint": self.fingerprint} if self.fingerprint else {})

    def _choice(self, ids: list[int], body: dict[str, Any], new: int, number: int) -> dict[str, Any]:
        vllm, echo = self.style == "vllm", body.get("echo", False) and self.style != "llama.cpp"
        tokens, values, reason = self._generate(ids, body, new or (1 if vllm else 0), number)
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        stops = [text.find(stop) for stop in body.get("stop", ()) if stop in text]
        stop = next((one for one in body.get("stop", ()) if one in text), None)
        text, reason = (text[: min(stops)], "stop") if stops else (text, reason)
        choice: dict[str, Any] = {"text": None if self.silent else text, "finish_reason": reason}
        choice["generated"] = len(tokens)
        if self.silent:
            choice["finish_reason"] = "length"
        kept = tokens if new else []
        if echo:
            choice["text"] = self.tokenizer.decode([*ids, *kept])
        if body.get("logprobs") is not None and not (self.style == "llama.cpp" and body.get("echo")):
            wanted = body.get("logprob_token_ids") if vllm else None
            named = vllm and body.get("return_tokens_as_token_ids", False)
            rows = [*(self._prompt_rows(ids) if echo else []), *values[: len(kept)]]
            choice["logprobs"] = self._told([*(ids if echo else []), *kept], rows, wanted, named)
        if vllm:
            choice |= {"stop_reason": stop}
            if body.get("return_token_ids"):
                choice["token_ids"] = tokens
            if body.get("prompt_logprobs") is not None:
                choice["prompt_logprobs"] = self._own(ids, body["prompt_logprobs"])
        return choice

    def _generate(
        self, ids: list[int], body: dict[str, Any], new: int, number: int
    ) -> tuple[list[int], list[Any], str]:
        import torch

        random = torch.Generator().manual_seed(int(body.get("seed") or 0) + number)
        tokens: list[int] = []
        rows: list[Any] = []
        while len(tokens) < new:
            row = self._rows([*ids, *tokens])[-1]
            heat = body.get("temperature", 1.0)
            drawn = torch.multinomial((row / heat).softmax(-1), 1, generator=random) if heat else row.argmax()
            tokens.append(int(drawn))
            rows.append(row)
            if tokens[-1] == self.tokenizer.eos_token_id and not body.get("ignore_eos"):
                return tokens, rows, "stop"
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            if any(stop in text for stop in body.get("stop", ())):
                return tokens, rows, "stop"
        return tokens, rows, "length"

    def _rows(self, ids: Sequence[int]) -> Any:
        """The log-probabilities after each token."""
        import torch

        other = self.wanders is not None and len(self.bodies) > self.wanders
        with self.lock, torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0].float()
            return (logits.flip(-1) if other else logits).log_softmax(-1)

    def _prompt_rows(self, ids: Sequence[int]) -> list[Any]:
        rows = self._rows(ids) + self.shift
        return [None, *(rows[:-1] * (0.0 if self.zeros else 1.0))]

    def _own(self, ids: Sequence[int], most: int) -> list[Any]:
        found: list[Any] = [None]
        for token, row in zip(ids[1:], self._prompt_rows(ids)[1:], strict=True):
            told = {}
            for one in (token, *row.topk(most).indices.tolist()):
                rank = int((row > row[one]).sum()) + 1
                told[str(one)] = {"logprob": float(row[one]), "rank": rank, "decoded_token": "x"}
            found.append(told)
        return found

    def _told(self, tokens: list[int], rows: list[Any], wanted: Any, named: bool) -> dict[str, Any]:
        def name(token: int) -> str:
            return f"token_id:{token}" if named else self.tokenizer.decode([token])

        tops: list[Any] = []
        for token, row in zip(tokens, rows, strict=True):
            if row is None:
                tops.append(None)
                continue
            best = int(row.argmax())
            tops.append({name(one): float(row[one]) for one in (*(wanted or (best,)), token)})
        values = [None if row is None else float(row[token]) for token, row in zip(tokens, rows, strict=True)]
        return {
            "tokens": [name(token) for token in tokens],
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": [0] * len(tokens),
        }

    def ask(self, path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        """Answer as to a probe, without a connection."""
        from pytest_touchstone.engines.http.calls import CallFailure

        try:
            return self.get(path) if body is None else self.post(path, dict(body))
        except ApiError as error:
            return CallFailure(
                f"the server answered {error.status}: {error}", "refused", error.status, str(error)
            )


class JsonHandler(BaseHTTPRequestHandler):
    """Sends the status and the content that ``answer`` gives; ends the connection where it gives none."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the client to acknowledge the headers

    def answer(self, body: Any) -> tuple[int, Any] | None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._reply(self.answer(None))

    def do_POST(self) -> None:
        self._reply(self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def _reply(self, answer: tuple[int, Any] | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        status, found = answer
        data = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving(folder: Path, **how: Any) -> Iterator[ModelServer]:
    """A server of a checkpoint, at a free port of this machine."""
    server = ModelServer(folder, **how)

    class Handler(JsonHandler):
        def answer(self, body: Any) -> tuple[int, Any] | None:
            server.headers.append(dict(self.headers))
            if server.dies is not None and len(server.bodies) >= server.dies:
                return None
            try:
                return 200, server.get(self.path) if body is None else server.post(self.path, body)
            except ApiError as error:
                return error.status, {"error": {"message": str(error), "code": error.status}}

    listening = PatientServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


# The program


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


class ProgramHandler(JsonHandler):
    model = ""

    def answer(self, body: Any) -> tuple[int, Any]:
        if body is None:
            known = {
                "/v1/models": {"data": [{"id": self.model, "owned_by": "vllm", "max_model_len": 4096}]},
                "/version": {"version": "0.1"},
                "/health": {},
            }
            return (200, known[self.path]) if self.path in known else (404, None)
        if self.path == "/tokenize":
            return 200, {"tokens": list(body["prompt"].encode())}
        return (200, completed(body)) if self.path == "/v1/completions" else (404, None)


def main(arguments: list[str]) -> None:
    fault = os.environ.get("MODEL_SERVER_FAULT")
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
    with Path(os.environ["MODEL_SERVER_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(notes) + "\n")
    if fault == "hangs":
        time.sleep(600)
    ProgramHandler.model = arguments[arguments.index("serve") + 1]
    port = int(arguments[arguments.index("--port") + 1])
    PatientServer(("127.0.0.1", port), ProgramHandler).serve_forever(0.05)


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
