"""The agreement between those who ask a server and the transport: calls, and what becomes of each.

Every call that is given to the transport ends exactly once: as a ``CallReply``, or as a ``Failure``, unless the run
stops. Nothing here depends on a library for HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")

Json: TypeAlias = Mapping[str, Any]

Kind: TypeAlias = Literal["refused", "gone", "deadline", "malformed", "limited", "server"]
"""The kinds of failure.

``refused``: the server will not answer this call (most of 4xx), or cannot be reached as asked (redirects, TLS).
``gone``: there was no connection, or it broke. ``deadline``: time ran out, of the attempt, the item or the run.
``malformed``: the last reply was not what was asked for. ``limited``: 429 to the end, or a wait beyond the deadline.
``server``: 5xx or 408, 409, 425 to the end.
"""


class Malformed(Exception):  # noqa: N818
    """A reply is not what was asked for; the text says in what, in a few words without a full stop.

    Raised by ``Call.read``. The call is asked again, as after a 5xx, unless it is ``final``: the server would reply
    with the same.
    """

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits of asking.

    ``attempt_seconds``: from sending a request to the end of its reply. ``item_seconds``: for all calls of one owner,
    from the first that is sent, waits included. ``run_seconds``: from the transport's first call, None for no limit.
    ``gone_seconds``: how long a server may be away before the run stops, None where that ends calls alone.
    ``concurrency_most``: calls under way at once.
    ``attempts``: how often a call is sent that fails for other reasons than 429.
    """

    attempt_seconds: float = 600.0
    item_seconds: float = 1800.0
    run_seconds: float | None = None
    gone_seconds: float | None = 120.0
    concurrency_most: int = 64
    attempts: int = 6


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A question to the server.

    ``path`` follows the server's base (``/v1/completions``). The method is POST with ``body`` as JSON, and GET where
    that is None. ``read`` makes the wanted value of the reply's JSON, of its text where ``text`` is set; it runs in
    another thread, and raises ``Malformed`` where the reply is not what was asked for. ``owner`` is the number of the
    item's request: calls with the same owner share a deadline. ``as_sent`` makes the body
    at the moment of sending, in that thread too.
    """

    path: str
    body: Json | None
    read: Callable[[Any], T]
    owner: int = 0
    text: bool = False
    as_sent: Callable[[Json], Json] = lambda body: body


@dataclass(frozen=True, slots=True)
class CallReply(Generic[T]):
    """The end of a call that was answered.

    ``usage`` has ``prompt_tokens`` and ``completion_tokens`` as far as the server says them, ``fingerprint`` is its
    ``system_fingerprint``; ``attempts`` counts how often the call was sent.
    """

    value: T
    usage: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a call without an answer: one line for people, without keys, and its kind.

    ``status`` is that of the last reply, None where there was none. ``said`` is what the server said then, shortened.
    """

    reason: str
    kind: Kind
    status: int | None = None
    said: str = ""


Receiver: TypeAlias = Callable[[int, CallReply[T] | Failure], None]
"""Called with the place of a call in the sequence given, and its end."""

TOKENS: Final = ("prompt_tokens", "completion_tokens")
"""The counts of ``CallReply.usage``."""
