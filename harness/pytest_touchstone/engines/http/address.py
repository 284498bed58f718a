"""Addresses of served models, as people write them.

    http://h:8000                        the API below /v1
    http://h:8000/v1                     the same
    https://h/team/llm/v1                behind a path prefix
    http://h:8000/v1/completions         texts and scores, never a chat
    http://h:8000/v1/chat/completions    chats alone

``?model=NAME`` chooses one of several models, ``?tokenizer=PATH`` says where the tokenizer is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import did_you_mean, listed

Endpoint: TypeAlias = Literal["completions", "chat"]

TARGETS: Final = ("http://", "https://")

_EXAMPLE: Final = "write http://HOST:PORT/v1"

_ENDINGS: Final[tuple[tuple[str, Endpoint], ...]] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
)


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a server's API: ``base`` without a slash at the end, then ``api`` (``/v1``).

    ``only`` is the endpoint that was named, None where all may be used.
    """

    base: str
    api: str = "/v1"
    only: Endpoint | None = None

    @property
    def url(self) -> str:
        """The address in one form, whichever was written."""
        return self.base + self.api


def parse_address(text: str) -> Address:
    """Return the address that a text means; raise ``CheckpointError`` saying what is wrong with it."""
    plain = text.partition("?")[0]
    try:
        parts = urlsplit(plain)
        port = parts.port
    except ValueError as error:
        raise CheckpointError(f"{hidden(plain)}: no address ({error}); {_EXAMPLE}") from None
    if parts.username is not None or parts.password is not None:
        raise CheckpointError(
            f"{hidden(plain)}: a user or key in the address would end up in results; "
            "give the key in OPENAI_API_KEY or TOUCHSTONE_API_KEY"
        )
    if not parts.hostname or parts.fragment:
        raise CheckpointError(f"{plain}: no address of a server; {_EXAMPLE}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{parts.scheme.lower()}://{host}" + (f":{port}" if port is not None else "")
    path, only = parts.path.rstrip("/"), None
    for ending, endpoint in _ENDINGS:
        if path.endswith(ending):
            path, only = path.removesuffix(ending), endpoint
            break
    if path.endswith("/v1"):
        return Address(place + path.removesuffix("/v1"), "/v1", only)
    # A whole endpoint without /v1 is what the server has; anything else is a prefix.
    return Address(place + path, "" if only else "/v1", only)


def hidden(text: str) -> str:
    """Return an address without the user and password in it."""
    scheme, between, rest = text.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{between}{place.rpartition('@')[2]}{slash}{path}"


def choose_model(address: Address, wanted: str | None, listing: Sequence[str]) -> str:
    """Return the model to ask: the one wanted, else the only one that the server lists.

    Raises ``CheckpointError`` with those there are. A server that lists none is believed to have the one wanted.
    """
    if wanted is not None:
        if listing and wanted not in listing:
            raise CheckpointError(
                f"{address.url}: no model {wanted!r}; {did_you_mean(wanted, listing)}it serves {listed(listing, 8)}"
            )
        return wanted
    if len(listing) == 1:
        return listing[0]
    if not listing:
        raise CheckpointError(
            f"{address.url}: the server lists no models; name the one to ask with --eval-model-name or ?model=NAME"
        )
    raise CheckpointError(
        f"{address.url}: the server has {len(listing)} models; choose one with --eval-model-name or ?model=NAME: "
        f"{listed(listing, 8)}"
    )
