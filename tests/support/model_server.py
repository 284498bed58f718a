"""A server with an API like OpenAI's on loopback, with a tiny model behind it.

Replies have the fields that vLLM 0.32 and llama.cpp document. The model computes each sequence by itself, with nothing
of ours in between, so that scores through the server can be held against those of this process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from pytest_touchstone.engines.http.calls import Failure

Style = Literal["vllm", "openai", "llama.cpp"]


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
    and after ``dies`` it breaks every connection. It tells of a prefix cache with blocks of ``block`` tokens.
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
                choice["prompt_logprobs"] = self._own(ids)
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

    def _own(self, ids: Sequence[int]) -> list[Any]:
        found: list[Any] = [None]
        for token, row in zip(ids[1:], self._prompt_rows(ids)[1:], strict=True):
            rank = int((row > row[token]).sum()) + 1
            found.append({str(token): {"logprob": float(row[token]), "rank": rank, "decoded_token": "x"}})
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

    def ask(self, path: str, body: Mapping[str, Any] | None) -> Any | Failure:
        """Answer as to a probe, without a connection."""
        try:
            return self.get(path) if body is None else self.post(path, dict(body))
        except ApiError as error:
            return Failure(
                f"the server answered {error.status}: {error}", "refused", error.status, str(error)
            )


@contextmanager
def serving(folder: Path, **how: Any) -> Iterator[ModelServer]:
    """A server of a checkpoint, at a free port of this machine."""
    server = ModelServer(folder, **how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the body waits 40 ms for the client to acknowledge the headers

        def do_GET(self) -> None:
            self._reply(lambda: server.get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._reply(lambda: server.post(self.path, body))

        def _reply(self, answer: Any) -> None:
            server.headers.append(dict(self.headers))
            if server.dies is not None and len(server.bodies) >= server.dies:
                self.close_connection = True
                return
            try:
                status, found = 200, answer()
            except ApiError as error:
                status, found = error.status, {"error": {"message": str(error), "code": error.status}}
            data = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
