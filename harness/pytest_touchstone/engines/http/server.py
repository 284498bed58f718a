"""The server in a user's target: its address, the model there, and the key.

    http://h:8000                        the API below /v1
    http://h:8000/v1                     the same
    https://h/team/llm/v1                behind a path prefix
    http://h:8000/v1/completions         texts and scores, never a chat
    http://h:8000/v1/chat/completions    chats alone

``?model=NAME`` chooses one of several models, ``?tokenizer=PATH`` says where the tokenizer is.

The key is taken from the environment alone, and kept out of everything that is said. There is no option for it: the
command line of a run is in its manifest, and in the list of processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.text import did_you_mean, join_names

Endpoint: TypeAlias = Literal["completions", "chat"]

TARGETS: Final = ("http://", "https://")

_EXAMPLE: Final = "write http://HOST:PORT/v1"

_ENDINGS: Final[tuple[tuple[str, Endpoint], ...]] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server's API: ``base`` without a slash at the end, then ``api`` (``/v1``).

    ``only`` is the endpoint in the address, None if all may be used.
    """

    base: str
    api: str = "/v1"
    only: Endpoint | None = None

    @property
    def url(self) -> str:
        """The address in its canonical form."""
        return self.base + self.api


def parse_address(text: str) -> ServerAddress:
    """Parse the address of a server. Raises ``CheckpointError`` with what is wrong."""
    plain = text.partition("?")[0]
    try:
        parts = urlsplit(plain)
        port = parts.port
    except ValueError as error:
        raise CheckpointError(f"{without_credentials(plain)}: no address ({error}); {_EXAMPLE}") from None
    if parts.username is not None or parts.password is not None:
        raise CheckpointError(
            f"{without_credentials(plain)}: a user or key in the address would end up in results; "
            "give the key in OPENAI_API_KEY or TOUCHSTONE_API_KEY"
        )
    if not parts.hostname or parts.fragment:
        raise CheckpointError(f"{plain}: no address of a server; {_EXAMPLE}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = f"{parts.scheme.lower()}://{host}" + (f":{port}" if port is not None else "")
    path, only = parts.path.rstrip("/"), None
    for ending, endpoint in _ENDINGS:
        if path.endswith(ending):
            path, only = path.removesuffix(ending), endpoint
            break
    if path.endswith("/v1"):
        return ServerAddress(origin + path.removesuffix("/v1"), "/v1", only)
    # A whole endpoint without /v1 is what the server has; anything else is a prefix.
    return ServerAddress(origin + path, "" if only else "/v1", only)


def without_credentials(text: str) -> str:
    """Return an address without the user and password in it."""
    scheme, between, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{between}{authority.rpartition('@')[2]}{slash}{path}"


def choose_model(address: ServerAddress, wanted: str | None, listing: Sequence[str]) -> str:
    """Return the wanted model, else the only one that the server lists.

    Raises ``CheckpointError`` with the list of models. If a server lists none, the wanted one is assumed to exist.
    """
    if wanted is not None:
        if listing and wanted not in listing:
            raise CheckpointError(
                f"{address.url}: no model {wanted!r}; {did_you_mean(wanted, listing)}it serves {join_names(listing, 8)}"
            )
        return wanted
    if len(listing) == 1:
        return listing[0]
    if not listing:
        raise CheckpointError(
            f"{address.url}: the server lists no models; name the one to ask with --eval-set model_name or ?model=NAME"
        )
    raise CheckpointError(
        f"{address.url}: the server has {len(listing)} models; choose one with --eval-set model_name or ?model=NAME: "
        f"{join_names(listing, 8)}"
    )


NAMES: Final = ("TOUCHSTONE_API_KEY", "OPENAI_API_KEY")
"""The variables that may hold a key, the first one that is set counts."""

MIN_KEY_LENGTH: Final = 6
"""The minimum characters of a key that is redacted: a shorter one is a placeholder (``EMPTY``, ``x``)."""

_LIKE_A_KEY: Final = re.compile(
    r"\b(?:sk|pk|hf|gsk|xai|nvapi)[-_][\w*.-]{8,}|(?<=\bBearer )[^\s\[]\S*|(?<=://)[^/@\s]+(?=@)"
)
"""Texts that look like a key; servers quote parts of one that they reject."""

_BETWEEN: Final = re.compile(r"\s+")


class ApiKey:
    """An API key, or none. No text of this object shows the value; it can only be had as a header."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str = "", value: str = "") -> None:
        """Store a key. Raises ``CheckpointError`` for a value that no header can hold, without showing it."""
        value = value.strip()
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise CheckpointError(
                f"{name} holds a character that no key has (a space, a line break, or a letter outside ASCII): "
                "set it again"
            )
        self.name, self._value = name, value

    def __bool__(self) -> bool:
        """Return whether there is a key."""
        return bool(self._value)

    def __repr__(self) -> str:
        """Return the name of the variable."""
        return f"Key({self.name or 'none'})"

    def __reduce__(self) -> str:
        """Raise ``TypeError``: a key does not travel to another process, which has the environment too."""
        raise TypeError("a key is not pickled")

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers with the key."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def removed(self, text: str) -> str:
        """Redact a text: the variable's name replaces the key, and nothing that looks like a key is left.

        The text becomes one printable line.
        """
        if len(self._value) >= MIN_KEY_LENGTH:
            for form in {self._value, quote(self._value, safe=""), quote(self._value)}:
                text = text.replace(form, f"[{self.name}]")
        shown = redact(_LIKE_A_KEY.sub("[a key]", text))
        return _BETWEEN.sub(" ", "".join(sign if sign.isprintable() else " " for sign in shown)).strip()


def key_from_environment(environ: Mapping[str, str]) -> ApiKey:
    """Return the key of an environment. Raises ``CheckpointError`` for a key that cannot be sent."""
    for name in NAMES:
        if environ.get(name, "").strip():
            return ApiKey(name, environ[name])
    return ApiKey()
