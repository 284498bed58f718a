"""The agreement between those who ask a server and the transport: calls, and what becomes of each.

Every call that is given to the transport ends exactly once: as a ``CallReply``, or as a ``Failure``, unless the run
stops. Nothing here depends on a library for HTTP, and all times are given.

Of attempts that fail the rules say which are made again and when, and in which failure a call ends:

==========================  ======================================================================================
failure                     rule
==========================  ======================================================================================
408, 409, 425, 5xx          again after a pause that doubles, with jitter, as often as ``CallLimits.attempts`` says
connection failed or broke  likewise; not counted while nobody answers at the server
no reply in time            likewise
reply not usable            again as after a 5xx
429                         again after such a pause, until the item's deadline; at once final where a quota is used up
other 4xx, redirects        final
==========================  ======================================================================================

``Retry-After`` takes the place of the pause, and is obeyed in full. What cannot be sent again before the deadline of
the item fails at once, and says so: waiting for nothing helps nobody.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from pytest_touchstone.core.text import count

T = TypeVar("T")

Json: TypeAlias = Mapping[str, Any]

Kind: TypeAlias = Literal["refused", "gone", "deadline", "malformed", "limited", "server"]
"""The kinds of failure.

``refused``: the server will not answer this call (most of 4xx), or cannot be reached as asked (redirects, TLS).
``gone``: there was no connection, or it broke. ``deadline``: time ran out, of the attempt, the item or the run.
``malformed``: the last reply was not what was asked for. ``limited``: 429 to the end, or a wait beyond the deadline.
``server``: 5xx or 408, 409, 425 to the end.
"""


class MalformedReplyError(Exception):
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
    another thread, and raises ``MalformedReplyError`` where the reply is not what was asked for. ``owner`` numbers the
    item's request: calls with the same owner share a deadline. ``as_sent`` makes the body at the moment of
    sending, in that thread too.
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


# Attempts that fail


What: TypeAlias = Literal["status", "connection", "time", "malformed", "final"]
"""The kinds of trouble: a status that is no success, no connection or a broken one, no reply in time, a reply that is
not usable, and what no further attempt would change."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""The seconds before the second attempt, and the most before any."""

AGAIN: Final = (408, 409, 425, 429)
"""The statuses below 500 that may be another one the next time."""

LIMITED: Final = 429

AWAY: Final = (502, 503, 504)
"""The statuses by which a proxy, or a server that starts, says that nobody answers behind it."""

LONGEST_WAIT: Final = 10.0**9
"""The seconds that stand for any longer wait."""

REQUEST_OPTION: Final = "--eval-set request_timeout"
ITEM_OPTION: Final = "--eval-set item_timeout"
"""The options of the deadlines."""

_KINDS: Final[Mapping[What, Kind]] = {"connection": "gone", "time": "deadline", "malformed": "malformed"}


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt without a usable reply: its kind, and a few words about it.

    ``status`` is that of the reply, ``said`` the server's explanation, and ``wait`` the seconds of its
    ``Retry-After``; ``unsent`` is true where there was no connection that the call could be sent over.
    """

    what: What
    text: str
    status: int | None = None
    said: str = ""
    wait: float | None = None
    unsent: bool = False

    @property
    def away(self) -> bool:
        """True where no server was met that answers."""
        return self.what in ("connection", "time") or self.status in AWAY

    @property
    def final(self) -> bool:
        """True where asking again is of no use."""
        if self.what == "status":
            return (self.status or 0) < 500 and self.status not in AGAIN
        return self.what == "final"


def pause_after(trouble: FailedAttempt, attempts: int) -> float:
    """Return the seconds before the next attempt: those that the server asks for, else twice those before the last."""
    if trouble.wait:  # 0 says nothing, and such a server would be asked without a breath
        return trouble.wait
    return min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 16), LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def ended_by(
    trouble: FailedAttempt, attempts: int, pause: float, left: float, limits: CallLimits
) -> Failure | None:
    """Return the failure in which a call ends; None where it is sent again after the pause.

    ``attempts`` are those that count, the present one among them; ``left`` are the seconds to the item's deadline.
    """
    if trouble.final:
        return _failure("refused", trouble, f"{trouble.text}; not asked again")
    if left <= 0 and trouble.what == "time":
        return _failure(
            "deadline", trouble, f"{_item(limits)} passed before the server replied ({ITEM_OPTION})"
        )
    if trouble.status != LIMITED and attempts >= limits.attempts:
        option = f" ({REQUEST_OPTION})" if trouble.what == "time" else ""
        reason = f"{trouble.text}, after {count(attempts, 'attempt')}{option}"
        return _failure(_KINDS.get(trouble.what, "server"), trouble, reason)
    if pause < left:
        return None
    asks = f"; the server asks to wait {_seconds(pause)}, which is past {_item(limits)} ({ITEM_OPTION})"
    passed = f", and no time is left of {_item(limits)} ({ITEM_OPTION}) for another attempt"
    return _failure(_late(trouble), trouble, trouble.text + (asks if trouble.wait else passed))


def overdue(trouble: FailedAttempt | None, limits: CallLimits) -> Failure:
    """Return the failure of a call whose item's deadline passed before it could be sent, or sent again.

    ``trouble`` is that of its last attempt.
    """
    waited = f"{_item(limits)} ({ITEM_OPTION}) passed while the call waited for its turn"
    if trouble is None:
        return Failure(waited, "deadline")
    return _failure(_late(trouble), trouble, f"{trouble.text}; {waited}")


def retry_after(value: str | None, date: str | None, wall: float) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, None where there is none that can be read.

    It is a number of seconds or an HTTP date. A date is seen from the reply's own ``Date``, since the clocks of two
    machines differ, and from ``wall`` (seconds since 1970) where there is none.
    """
    try:
        seconds = float(value or "")
    except ValueError:
        then, now = _moment(value or ""), _moment(date or "")
        if then is None:
            return None
        seconds = then - (wall if now is None else now)
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_WAIT)


def _moment(text: str) -> float | None:
    """Return an HTTP date, in any of its three forms, as seconds since 1970."""
    try:
        moment = parsedate_to_datetime(text)
        # The form of C's asctime has no zone; all HTTP dates are UTC.
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def status_text(status: int) -> str:
    """Return a status in words: ``HTTP 429 (too many requests)``."""
    phrase = responses.get(status, "").lower()
    return f"HTTP {status} ({phrase})" if phrase else f"HTTP {status}"


def _failure(kind: Kind, trouble: FailedAttempt, text: str) -> Failure:
    said = f"; the server says: {trouble.said}" if trouble.said else ""
    return Failure(text + said, kind, trouble.status, trouble.said)


def _late(trouble: FailedAttempt) -> Kind:
    return "limited" if trouble.status == LIMITED else "deadline"


def _item(limits: CallLimits) -> str:
    return f"the item's {_seconds(limits.item_seconds)}"


def _seconds(seconds: float) -> str:
    return (
        "for ever" if seconds >= LONGEST_WAIT else f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    )
