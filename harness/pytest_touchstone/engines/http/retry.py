"""The rules of asking again: which failure of a call is tried again, and when.

==========================  ======================================================================================
failure                     rule
==========================  ======================================================================================
408, 409, 425, 5xx          again after a pause that doubles, with jitter, as often as ``Limits.attempts`` says
connection failed or broke  likewise; attempts do not count while the server is known to be away
no reply in time            likewise
reply not usable            likewise
429                         again after such a pause, until the item's deadline; at once final where a quota is used up
other 4xx, redirects        final
==========================  ======================================================================================

``Retry-After`` takes the place of the pause, and is obeyed in full. What cannot be sent again before the item's
deadline fails at once, and says so: waiting for nothing helps nobody.

Pure: all times are given, and chance is a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import Failure, Kind, Limits

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

REQUEST_OPTION: Final = "--eval-request-timeout"
ITEM_OPTION: Final = "--eval-item-timeout"
"""The options of the deadlines."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An attempt without a usable reply: its kind, and a few words about it.

    ``status`` is that of the reply, ``said`` the server's explanation, and ``wait`` the seconds of its
    ``Retry-After``.
    """

    what: What
    text: str
    status: int | None = None
    said: str = ""
    wait: float | None = None

    @property
    def away(self) -> bool:
        """True where no server was met at all."""
        return self.what == "connection" or (self.what == "status" and self.status in AWAY)

    @property
    def down(self) -> bool:
        """True where no server was met that works; one call after the other, it is gone."""
        return self.away or self.what == "time" or (self.status or 0) >= 500

    @property
    def overload(self) -> bool:
        """True where fewer calls at once may help: 408, 429, 5xx, time-outs."""
        return self.what == "time" or (self.what == "status" and (self.status in (408, 429) or self.down))

    @property
    def final(self) -> bool:
        """True where asking again is of no use."""
        if self.what == "status":
            return (self.status or 0) < 500 and self.status not in AGAIN
        return self.what == "final"


def decide(
    trouble: Trouble,
    attempts: int,
    now: float,
    deadline: float,
    limits: Limits,
    *,
    chance: Callable[[], float],
) -> float | Failure:
    """Return when to ask again, or the failure in which the call ends.

    ``attempts`` are those that count, the present one among them; ``deadline`` is the item's. ``chance`` returns a
    number from 0 to 1.
    """
    if trouble.final:
        return _failure("refused", trouble, f"{trouble.text}; not asked again")
    if now >= deadline and trouble.what == "time":
        return _failure(
            "deadline", trouble, f"{_item(limits)} passed before the server replied ({ITEM_OPTION})"
        )
    if trouble.status != LIMITED and attempts >= limits.attempts:
        told = f" ({REQUEST_OPTION})" if trouble.what == "time" else ""
        return _failure(_kind(trouble), trouble, f"{trouble.text}, after {count(attempts, 'attempt')}{told}")
    pause = trouble.wait
    if not pause:  # 0 says nothing, and such a server would be asked without a breath
        pause = min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 16), LONGEST_PAUSE) * (0.5 + 0.5 * chance())
    if now + pause < deadline:
        return now + pause
    kind: Kind = "limited" if trouble.status == LIMITED else "deadline"
    asks = f"; the server asks to wait {_seconds(pause)}, which is past {_item(limits)} ({ITEM_OPTION})"
    passed = f", and no time is left of {_item(limits)} ({ITEM_OPTION}) for another attempt"
    return _failure(kind, trouble, trouble.text + (asks if trouble.wait else passed))


def overdue(trouble: Trouble | None, limits: Limits) -> Failure:
    """Return the failure of a call whose item's deadline passed before it could be sent, or sent again.

    ``trouble`` is that of its last attempt.
    """
    last = trouble or Trouble("time", "the call was not sent")
    kind: Kind = "limited" if last.status == LIMITED else "deadline"
    waited = f"{_item(limits)} ({ITEM_OPTION}) passed while the call waited for its turn"
    return _failure(kind, last, f"{last.text}; {waited}" if trouble else waited)


def retry_after(value: str | None, date: str | None, wall: float) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, None where there is none that can be read.

    It is a number of seconds or an HTTP date. A date is seen from the reply's own ``Date``, since the clocks of two
    machines differ, and from ``wall`` (seconds since 1970) where there is none.
    """
    text = (value or "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        then, now = _moment(text), _moment(date or "")
        if then is None:
            return None
        seconds = then - (wall if now is None else now)
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_WAIT)


def _moment(text: str) -> float | None:
    """Return an HTTP date, in any of its three forms, as seconds since 1970."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    try:
        # The form of C's asctime has no zone; all HTTP dates are UTC.
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def status_text(status: int) -> str:
    """Return a status in words: ``HTTP 429 (too many requests)``."""
    try:
        return f"HTTP {status} ({HTTPStatus(status).phrase.lower()})"
    except ValueError:
        return f"HTTP {status}"


def _failure(kind: Kind, trouble: Trouble, text: str) -> Failure:
    said = f"; the server says: {trouble.said}" if trouble.said else ""
    return Failure(text + said, kind, trouble.status, trouble.said)


def _kind(trouble: Trouble) -> Kind:
    kinds: dict[What, Kind] = {"connection": "gone", "time": "deadline", "malformed": "malformed"}
    return kinds.get(trouble.what, "server")


def _item(limits: Limits) -> str:
    return f"the item's {_seconds(limits.item_seconds)}"


def _seconds(seconds: float) -> str:
    return (
        "for ever" if seconds >= LONGEST_WAIT else f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    )
