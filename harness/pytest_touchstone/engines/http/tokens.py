"""The tokenizer of a served model: of the same files as in this process, or the server's own ``/tokenize``.

Sought in this order: ``--eval-set tokenizer`` (a folder, a Hub id, or any checkpoint), the folder or Hub id that the
server says its model is, and the server's ``/tokenize``. Without one only texts can be asked for, as text.
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

KNOWN: Final = "The quick brown fox jumps over the lazy dog. 서울은 대한민국의 수도이다.\n\n  x = 42"
"""The text by which tokenizers are compared."""

REMOTE: Final = "/tokenize"
"""The name of a server's own tokenizer."""

AskAll = Callable[[str, Sequence[Mapping[str, Any]]], list[Any]]
"""Posts bodies to a path of the server, several at once; returns the JSON of the replies in order, None where there
is none."""

ROUNDS: Final = 3
"""The most times that texts are asked for together: which ones are needed may depend on the tokens of others."""

MOST_KNOWN: Final = 10_000
"""The most texts whose tokens are kept."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenizer with the name by which it is found again, and whether it has a chat template. ``remote`` is that
    of the server, if it is that one."""

    name: str
    text: TextTokenizer
    template: bool
    remote: RemoteTokenizer | None = None

    @property
    def identity(self) -> str:
        """A hash of what it does: equal for two copies of one tokenizer."""
        made = self.text.prompt(KNOWN)
        said = self.text.conversation((Turn("user", "x"),)) if self.template else ""
        plain = [list(made) if isinstance(made, tuple) else str(made), said if isinstance(said, str) else ""]
        return hashlib.sha256(json.dumps(plain).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def find_tokens(wanted: str | None, names: Sequence[str], ask: AskAll) -> Tokens | None:
    """Return the tokenizer that is wanted, else that of the first of the model's ``names`` that has one here, else the
    server's, else None.

    Raises ``CheckpointError`` where the one that is wanted cannot be loaded.
    """
    if wanted is not None:
        return named_tokens(wanted, ask)
    for name in names:
        try:
            if Path(name).is_dir() or (is_hub_id(name) and (_cached(name) or _hub_is_there())):
                return named_tokens(name, ask)
        except (CheckpointError, OSError):
            continue  # it is only the server's word for its model
    remote = RemoteTokenizer(ask)
    return _remote(remote) if remote.works() else None


def named_tokens(name: str, ask: AskAll) -> Tokens:
    """Return the tokenizer of a name that ``find_tokens`` gave, or of what a person wrote."""
    if name == REMOTE:
        return _remote(RemoteTokenizer(ask))
    found = _loaded(name)
    return Tokens(name, TextTokenizer(found), bool(getattr(found, "chat_template", None)))


def _loaded(name: str) -> Any:
    from pytest_touchstone.engines.transformers.loading import load_tokenizer, tokenizer_at
    from pytest_touchstone.engines.transformers.mtp import load_tokenizer as load_mtp_tokenizer

    path = Path(name).expanduser()
    if path.is_dir() and has_tokenizer(path):
        return tokenizer_at(path, local_files_only=True)
    if not path.exists() and is_hub_id(name):
        return tokenizer_at(name)
    try:
        (info,) = resolve(name, seq_len=None, served=True)[:1]
    except CheckpointError as error:
        raise CheckpointError(f"--eval-set tokenizer: {error}") from None
    return load_mtp_tokenizer(info) if info.format == "mtp" else load_tokenizer(info)


def _cached(name: str) -> bool:
    """Return whether the tokenizer of a Hub id is in the cache here."""
    from pytest_touchstone.engines.transformers.loading import tokenizer_at

    try:
        return tokenizer_at(name, local_files_only=True) is not None
    except CheckpointError:
        return False


def _hub_is_there() -> bool:
    """Return whether the Hub's name is known here: without a network its library tries for minutes."""
    place = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if getproxies().keys() - {"no"}:
        return True
    try:
        return bool(socket.getaddrinfo(place.hostname, place.port or 443))
    except OSError:
        return False


def _remote(tokenizer: RemoteTokenizer) -> Tokens:
    return Tokens(REMOTE, TextTokenizer(tokenizer, Vocabulary(tokenizer)), template=False, remote=tokenizer)


_Text: TypeAlias = tuple[str, bool]
"""A text, and whether special tokens are put before it."""


class RemoteTokenizer:
    """A server's ``/tokenize``, as far as ``TextTokenizer`` needs a tokenizer.

    A text is asked for once, and those of many requests together (``ahead``).

    It does not say which bytes a token stands for. So where a continuation begins is known by the tokens of the
    context alone, as in lm-evaluation-harness, and texts of tokens cannot be read.
    """

    is_fast = False
    bos_token: str | None = None
    chat_template: str | None = None
    all_special_ids: Sequence[int] = ()
    added_tokens_decoder: Mapping[int, Any] = {}
    eos_token_id: int | None = None

    def __init__(self, ask: AskAll) -> None:
        self._ask = ask
        self._known: dict[_Text, list[int]] = {}
        self._wanted: dict[_Text, None] | None = None
        self.bos_token_id: int | None = None

    def works(self) -> bool:
        """Return whether the server has a tokenizer, and note the token that it puts before texts."""
        try:
            bare, whole = self.encode(KNOWN, add_special_tokens=False), self.encode(KNOWN)
        except CheckpointError:
            return False
        if whole != bare and whole[1 : len(bare) + 1] == bare:
            self.bos_token_id = whole[0]
        return bool(bare)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a text's tokens. Raises ``CheckpointError`` where the server gives none."""
        key = text, add_special_tokens
        if key not in self._known:
            if self._wanted is not None:
                self._wanted[key] = None
                return [0]
            self._known[key] = _ids(self._ask(REMOTE, [_body(key)])[0], text)
        return self._known[key]

    def ahead(self, use: Callable[[], object]) -> None:
        """Ask together for the tokens that ``use`` needs: it is called without them to find out which."""
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        for _ in range(ROUNDS):
            wanted: dict[_Text, None] = {}
            self._wanted = wanted
            try:
                use()
            finally:
                self._wanted = None
            if not wanted:
                return
            for key, said in zip(wanted, self._ask(REMOTE, [_body(key) for key in wanted]), strict=True):
                with suppress(CheckpointError):  # which ``encode`` raises when it asks again
                    self._known[key] = _ids(said, key[0])

    def convert_ids_to_tokens(self, token: int) -> str:
        """Return a text that stands for no bytes."""
        return f"token {token}"


def _body(key: _Text) -> dict[str, Any]:
    # The names of vLLM and of llama.cpp.
    text, special = key
    return {"prompt": text, "content": text, "add_special_tokens": special, "add_special": special}


def _ids(said: Any, text: str) -> list[int]:
    found = said.get("tokens") if isinstance(said, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
        raise CheckpointError(f"the server's {REMOTE} gives no tokens for {text[:40]!r}")
    return found
