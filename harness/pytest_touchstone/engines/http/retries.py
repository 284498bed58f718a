"""Attempts that fail: which are made again and when, and in which failure a call ends.

Pure: all times are given.

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
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Final, Literal, TypeAlias

from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import CallLimits, Failure, Kind

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

_KINDS: Final[Mapping[What, Kind]] = {"connection": "gone", "time": "deadline", "malformed": "malformed"}


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
        """True where no server was met that answers."""
        return self.what in ("connection", "time") or self.status in AWAY

    @property
    def final(self) -> bool:
        """True where asking again is of no use."""
        if self.what == "status":
            return (self.status or 0) < 500 and self.status not in AGAIN
        return self.what == "final"


def pause_after(trouble: Trouble, attempts: int) -> float:
    """Return the seconds before the next attempt: those that the server asks for, else twice those before the last."""
    if trouble.wait:  # 0 says nothing, and such a server would be asked without a breath
        return trouble.wait
    return min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 16), LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def ended_by(
    trouble: Trouble, attempts: int, pause: float, left: float, limits: CallLimits
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


def overdue(trouble: Trouble | None, limits: CallLimits) -> Failure:
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


def _failure(kind: Kind, trouble: Trouble, text: str) -> Failure:
    said = f"; the server says: {trouble.said}" if trouble.said else ""
    return Failure(text + said, kind, trouble.status, trouble.said)


def _late(trouble: Trouble) -> Kind:
    return "limited" if trouble.status == LIMITED else "deadline"


def _item(limits: CallLimits) -> str:
    return f"the item's {_seconds(limits.item_seconds)}"


def _seconds(seconds: float) -> str:
    return (
        "for ever" if seconds >= LONGEST_WAIT else f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    )
