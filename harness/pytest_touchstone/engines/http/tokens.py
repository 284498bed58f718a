"""Find the tokenizer of a served model: its files, or the server's own ``/tokenize``.

The order is: ``--eval-set tokenizer`` (a folder, a Hub id, or any checkpoint), the folder or Hub id that the server
reports for its model, and the server's ``/tokenize``. Without any, only texts can be generated, from prompts as text.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies

from pytest_touchstone.checkpoints.formats.transformers import has_tokenizer
from pytest_touchstone.checkpoints.resolve import is_hub_id, resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Turn
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer, Vocabulary

PROBE_TEXT: Final = "The quick brown fox jumps over the lazy dog. 서울은 대한민국의 수도이다.\n\n  x = 42"
"""The text on which tokenizers are compared."""

REMOTE: Final = "/tokenize"
"""The name of a server's own tokenizer."""

AskAll = Callable[[str, Sequence[Mapping[str, Any]]], list[Any]]
"""Posts several bodies to a path of the server at once; returns the JSON of the replies, None for a failure."""

MAX_ROUNDS: Final = 3
"""The maximum rounds of a prefetch; which texts are needed may depend on the tokens of others."""

MAX_CACHED_TEXTS: Final = 10_000
"""The maximum number of texts whose tokens are kept."""


@dataclass(frozen=True, slots=True)
class ServedTokenizer:
    """The tokenizer of a served model, and the ``name`` to find it again.

    ``template`` says whether it has a chat template; ``remote`` is set if the tokenizer is the server's own.
    """

    name: str
    text: TextTokenizer
    template: bool
    remote: RemoteTokenizer | None = None

    @property
    def identity(self) -> str:
        """A hash of its outputs on known texts, equal for two copies of one tokenizer."""
        prompt = self.text.prompt(PROBE_TEXT)
        chat = self.text.conversation((Turn("user", "x"),)) if self.template else ""
        outputs = [
            list(prompt) if isinstance(prompt, tuple) else str(prompt),
            chat if isinstance(chat, str) else "",
        ]
        return hashlib.sha256(json.dumps(outputs).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def find_tokenizer(wanted: str | None, names: Sequence[str], ask: AskAll) -> ServedTokenizer | None:
    """Return the wanted tokenizer, else the first found by a name of the model, else the server's, else None.

    Raises ``CheckpointError`` if the wanted tokenizer cannot be loaded.
    """
    if wanted is not None:
        return tokenizer_by_name(wanted, ask)
    for name in names:
        try:
            if Path(name).is_dir() or (is_hub_id(name) and (_is_cached(name) or _is_hub_reachable())):
                return tokenizer_by_name(name, ask)
        except (CheckpointError, OSError):
            continue  # the name is only what the server calls its model
    remote = RemoteTokenizer(ask)
    return _from_server(remote) if remote.works() else None


def tokenizer_by_name(name: str, ask: AskAll) -> ServedTokenizer:
    """Load a tokenizer by ``ServedTokenizer.name``, or by what a user wrote."""
    if name == REMOTE:
        return _from_server(RemoteTokenizer(ask))
    tokenizer = _load(name)
    return ServedTokenizer(name, TextTokenizer(tokenizer), bool(getattr(tokenizer, "chat_template", None)))


def _load(name: str) -> Any:
    from pytest_touchstone.engines.transformers.loading import load_tokenizer, load_tokenizer_at
    from pytest_touchstone.engines.transformers.mtp import load_tokenizer as load_mtp_tokenizer

    path = Path(name).expanduser()
    if path.is_dir() and has_tokenizer(path):
        return load_tokenizer_at(path, local_files_only=True)
    if not path.exists() and is_hub_id(name):
        return load_tokenizer_at(name)
    try:
        (info,) = resolve(name, seq_len=None, served=True)[:1]
    except CheckpointError as error:
        raise CheckpointError(f"--eval-set tokenizer: {error}") from None
    return load_mtp_tokenizer(info) if info.format == "mtp" else load_tokenizer(info)


def _is_cached(name: str) -> bool:
    """Return whether the tokenizer of a Hub id is in the local cache."""
    from pytest_touchstone.engines.transformers.loading import load_tokenizer_at

    try:
        return load_tokenizer_at(name, local_files_only=True) is not None
    except CheckpointError:
        return False


def _is_hub_reachable() -> bool:
    """Return whether the Hub's host resolves; without a network the Hub's library retries for minutes."""
    url = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if getproxies().keys() - {"no"}:
        return True
    try:
        return bool(socket.getaddrinfo(url.hostname, url.port or 443))
    except OSError:
        return False


def _from_server(tokenizer: RemoteTokenizer) -> ServedTokenizer:
    return ServedTokenizer(
        REMOTE, TextTokenizer(tokenizer, Vocabulary(tokenizer)), template=False, remote=tokenizer
    )


_Text: TypeAlias = tuple[str, bool]
"""A text, and whether special tokens are put before it."""


class RemoteTokenizer:
    """A server's ``/tokenize`` with the interface of a tokenizer that ``TextTokenizer`` needs.

    Each text is sent once, those of many requests together (``ahead``).

    The server does not report the bytes of a token. So the start of a continuation is found by tokenizing the context
    alone, as in lm-evaluation-harness, and tokens cannot be decoded.
    """

    is_fast = False
    bos_token: str | None = None
    chat_template: str | None = None
    all_special_ids: Sequence[int] = ()
    added_tokens_decoder: Mapping[int, Any] = {}
    eos_token_id: int | None = None

    def __init__(self, ask: AskAll) -> None:
        self._ask = ask
        self._token_ids: dict[_Text, list[int]] = {}
        self._wanted: dict[_Text, None] | None = None
        self.bos_token_id: int | None = None

    def works(self) -> bool:
        """Return whether the server has a tokenizer; store the token that it puts before texts."""
        try:
            bare, whole = self.encode(PROBE_TEXT, add_special_tokens=False), self.encode(PROBE_TEXT)
        except CheckpointError:
            return False
        if whole != bare and whole[1 : len(bare) + 1] == bare:
            self.bos_token_id = whole[0]
        return bool(bare)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises ``CheckpointError`` if the server gives none."""
        key = text, add_special_tokens
        if key not in self._token_ids:
            if self._wanted is not None:
                self._wanted[key] = None
                return [0]
            self._token_ids[key] = _ids(self._ask(REMOTE, [_body(key)])[0], text)
        return self._token_ids[key]

    def ahead(self, use: Callable[[], object]) -> None:
        """Prefetch the tokens that ``use`` needs; ``use`` runs with dummy tokens to find out which."""
        if len(self._token_ids) > MAX_CACHED_TEXTS:
            self._token_ids.clear()
        for _ in range(MAX_ROUNDS):
            wanted: dict[_Text, None] = {}
            self._wanted = wanted
            try:
                use()
            finally:
                self._wanted = None
            if not wanted:
                return
            for key, reply in zip(wanted, self._ask(REMOTE, [_body(key) for key in wanted]), strict=True):
                with suppress(CheckpointError):  # which ``encode`` raises when it asks again
                    self._token_ids[key] = _ids(reply, key[0])

    def convert_ids_to_tokens(self, token: int) -> str:
        """Return a text that stands for no bytes."""
        return f"token {token}"


def _body(key: _Text) -> dict[str, Any]:
    # The names of vLLM and of llama.cpp.
    text, special = key
    return {"prompt": text, "content": text, "add_special_tokens": special, "add_special": special}


def _ids(reply: Any, text: str) -> list[int]:
    ids = reply.get("tokens") if isinstance(reply, Mapping) else None
    if not isinstance(ids, list) or not all(isinstance(token_id, int) for token_id in ids):
        raise CheckpointError(f"the server's {REMOTE} gives no tokens for {text[:40]!r}")
    return ids
