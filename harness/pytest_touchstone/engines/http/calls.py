"""Calls to a server, their ends, and the retry policy. Independent of any HTTP library.

Every call that is given to the transport ends exactly once, as a ``CallReply`` or a ``CallFailure``, unless the run
stops.

The retry policy decides after a failed attempt whether and when the call is sent again:

==========================  ======================================================================================
failure                     rule
==========================  ======================================================================================
408, 409, 425, 5xx          again after a pause that doubles, with jitter, as often as ``CallLimits.attempts`` says
connection failed or broke  likewise; not counted while nobody answers at the server, nor, where no connection was
                            made, in a call's first ``CallLimits.gone_seconds``
no reply in time            likewise
reply not usable            again as after a 5xx
429                         again after such a pause, until the item's deadline; at once final where a quota is used up
other 4xx, redirects        final
==========================  ======================================================================================

``Retry-After`` replaces the pause and is obeyed in full. A call that cannot be sent again before the deadline of its
item fails at once.
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

FailureKind: TypeAlias = Literal["refused", "gone", "deadline", "malformed", "limited", "server"]
"""The kinds of failure of a call.

``refused``: the server rejects the call (most of 4xx), or the address is wrong (redirects, TLS). ``gone``: there was no
connection, or it broke. ``deadline``: the time of the attempt, the item or the run ran out. ``malformed``: the last
reply was not usable. ``limited``: the last status was 429, or the server asked for a wait beyond the deadline.
``server``: the last status was 5xx, 408, 409 or 425.
"""


class MalformedReplyError(Exception):
    """A reply that is not usable, with a short reason.

    ``Call.read`` raises it. The call is sent again, as after a 5xx, unless the error is ``final``.
    """

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits of time, concurrency and retries.

    Attributes:
        attempt_seconds: From sending a request to the end of its reply.
        item_seconds: For all calls of one owner, from the first that is sent, waits included.
        run_seconds: From the transport's first call; None for no limit.
        gone_seconds: The time that a server may be away before the run stops; None to fail only the calls.
        concurrency_most: The calls in flight at once.
        attempts: The attempts of a call, those that end with 429 not counted.

    """

    attempt_seconds: float = 600.0
    item_seconds: float = 1800.0
    run_seconds: float | None = None
    gone_seconds: float | None = 120.0
    concurrency_most: int = 64
    attempts: int = 6


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request to the server.

    Attributes:
        path: The path below the server's base (``/v1/completions``).
        body: The JSON to POST; None for GET.
        read: Parses the reply's JSON in another thread; raises ``MalformedReplyError`` if it is not usable.
        owner: The index of the item's request; calls with the same owner share a deadline.
        text: Whether ``read`` gets the reply's text in place of its JSON.
        as_sent: Adapts the body at the moment of sending, in that thread too.

    """

    path: str
    body: Json | None
    read: Callable[[Any], T]
    owner: int = 0
    text: bool = False
    as_sent: Callable[[Json], Json] = lambda body: body


@dataclass(frozen=True, slots=True)
class CallReply(Generic[T]):
    """The end of an answered call.

    ``usage`` has ``prompt_tokens`` and ``completion_tokens`` if the server reports them, ``fingerprint`` is its
    ``system_fingerprint``; ``attempts`` counts how often the call was sent.
    """

    value: T
    usage: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class CallFailure:
    """The end of a call without an answer: one line for people, without keys, and its kind.

    ``status`` is that of the last reply, None if there was none; ``server_message`` is its explanation, shortened.
    """

    reason: str
    kind: FailureKind
    status: int | None = None
    server_message: str = ""


Receiver: TypeAlias = Callable[[int, CallReply[T] | CallFailure], None]
"""Receives the index of a call, and its end."""

TOKENS: Final = ("prompt_tokens", "completion_tokens")
"""The counts of ``CallReply.usage``."""


# Attempts that fail


AttemptFailureKind: TypeAlias = Literal["status", "connection", "time", "malformed", "final"]
"""The kinds of failed attempts: an error status, a missing or broken connection, no reply in time, an unusable reply,
and failures that no further attempt would change."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""The seconds before the second attempt, and the most before any."""

RETRIED_STATUSES: Final = (408, 409, 425, 429)
"""The statuses below 500 that are worth another attempt."""

RATE_LIMITED: Final = 429

UNAVAILABLE_STATUSES: Final = (502, 503, 504)
"""The statuses of a proxy, or of a starting server, while nobody answers behind it."""

LONGEST_WAIT: Final = 10.0**9
"""The upper limit of ``Retry-After``, in seconds."""

REQUEST_OPTION: Final = "--eval-set request_timeout"
ITEM_OPTION: Final = "--eval-set item_timeout"
"""The options of the deadlines."""

_KINDS: Final[Mapping[AttemptFailureKind, FailureKind]] = {
    "connection": "gone",
    "time": "deadline",
    "malformed": "malformed",
}


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt without a usable reply: its kind, and a short reason.

    ``status`` is that of the reply, ``server_message`` the server's explanation, and ``wait`` the seconds of its
    ``Retry-After``; ``unsent`` is true if no connection was made, so that the server has not seen the call.
    """

    kind: AttemptFailureKind
    text: str
    status: int | None = None
    server_message: str = ""
    wait: float | None = None
    unsent: bool = False

    @property
    def away(self) -> bool:
        """True if no server answered."""
        return self.kind in ("connection", "time") or self.status in UNAVAILABLE_STATUSES

    @property
    def final(self) -> bool:
        """True if another attempt is of no use."""
        if self.kind == "status":
            return (self.status or 0) < 500 and self.status not in RETRIED_STATUSES
        return self.kind == "final"


def pause_after(attempt: FailedAttempt, attempts: int) -> float:
    """Return the seconds before the next attempt: the server's ``Retry-After``, else exponential backoff."""
    if attempt.wait:  # 0 says nothing, and such a server would be asked without a breath
        return attempt.wait
    return min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 16), LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def failure_after(
    attempt: FailedAttempt, attempts: int, pause: float, left: float, limits: CallLimits
) -> CallFailure | None:
    """Return the failure that ends a call, or None if it is sent again after the pause.

    Args:
        attempt: The last attempt.
        attempts: The attempts that count towards the limit, the last one included.
        pause: The seconds before the next attempt.
        left: The seconds to the item's deadline.
        limits: The limits of the run.

    """
    if attempt.final:
        return _failure("refused", attempt, f"{attempt.text}; not asked again")
    if left <= 0 and attempt.kind == "time":
        return _failure(
            "deadline", attempt, f"{_item(limits)} passed before the server replied ({ITEM_OPTION})"
        )
    if attempt.status != RATE_LIMITED and attempts >= limits.attempts:
        option = f" ({REQUEST_OPTION})" if attempt.kind == "time" else ""
        reason = f"{attempt.text}, after {count(attempts, 'attempt')}{option}"
        return _failure(_KINDS.get(attempt.kind, "server"), attempt, reason)
    if pause < left:
        return None
    asks = f"; the server asks to wait {_seconds(pause)}, which is past {_item(limits)} ({ITEM_OPTION})"
    passed = f", and no time is left of {_item(limits)} ({ITEM_OPTION}) for another attempt"
    return _failure(_deadline_kind(attempt), attempt, attempt.text + (asks if attempt.wait else passed))


def deadline_failure(attempt: FailedAttempt | None, limits: CallLimits) -> CallFailure:
    """Return the failure of a call that waited past its item's deadline.

    ``attempt`` is the last attempt, None if the call was never sent.
    """
    waited = f"{_item(limits)} ({ITEM_OPTION}) passed while the call waited for its turn"
    if attempt is None:
        return CallFailure(waited, "deadline")
    return _failure(_deadline_kind(attempt), attempt, f"{attempt.text}; {waited}")


def retry_after(value: str | None, date: str | None, wall: float) -> float | None:
    """Parse a ``Retry-After`` header (seconds or an HTTP date) into seconds to wait, or None.

    A date is compared with the reply's own ``Date``, since the clocks of two machines differ, else with ``wall``
    (seconds since 1970).
    """
    try:
        seconds = float(value or "")
    except ValueError:
        wanted_time, server_time = _moment(value or ""), _moment(date or "")
        if wanted_time is None:
            return None
        seconds = wanted_time - (wall if server_time is None else server_time)
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_WAIT)


def _moment(text: str) -> float | None:
    """Return an HTTP date, in any of its three forms, in seconds since 1970."""
    try:
        moment = parsedate_to_datetime(text)
        # The form of C's asctime has no zone; all HTTP dates are UTC.
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def status_text(status: int) -> str:
    """Describe a status: ``HTTP 429 (too many requests)``."""
    phrase = responses.get(status, "").lower()
    return f"HTTP {status} ({phrase})" if phrase else f"HTTP {status}"


def _failure(kind: FailureKind, attempt: FailedAttempt, text: str) -> CallFailure:
    explanation = f"; the server says: {attempt.server_message}" if attempt.server_message else ""
    return CallFailure(text + explanation, kind, attempt.status, attempt.server_message)


def _deadline_kind(attempt: FailedAttempt) -> FailureKind:
    return "limited" if attempt.status == RATE_LIMITED else "deadline"


def _item(limits: CallLimits) -> str:
    return f"the item's {_seconds(limits.item_seconds)}"


def _seconds(seconds: float) -> str:
    return (
        "for ever" if seconds >= LONGEST_WAIT else f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    )
