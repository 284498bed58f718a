"""When calls are sent: which failure is tried again and when, how many may be under way, and when the server is gone.

Pure: all times are given, and chance is a function.

==========================  ======================================================================================
failure                     rule
==========================  ======================================================================================
408, 409, 425, 5xx          again after a pause that doubles, with jitter, as often as ``CallLimits.attempts`` says
connection failed or broke  likewise; attempts do not count while the server is known to be away
no reply in time            likewise
reply not usable            likewise
429                         again after such a pause, until the item's deadline; at once final where a quota is used up
other 4xx, redirects        final
==========================  ======================================================================================

``Retry-After`` takes the place of the pause, and is obeyed in full. What cannot be sent again before the deadline of
the item fails at once, and says so: waiting for nothing helps nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from statistics import median
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
    limits: CallLimits,
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


def overdue(trouble: Trouble | None, limits: CallLimits) -> Failure:
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


def _item(limits: CallLimits) -> str:
    return f"the item's {_seconds(limits.item_seconds)}"


def _seconds(seconds: float) -> str:
    return (
        "for ever" if seconds >= LONGEST_WAIT else f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    )


FIRST: Final = 8
"""The limit at the beginning."""

AFTER_REFUSAL: Final = 0.5
AFTER_RISE: Final = 0.8
"""The factors of the two kinds of decrease."""

RISE: Final = 4.0
"""The latency, in multiples of the best one, that is a sign of overload."""

FORGETTING: Final = 1.02
"""The factor by which the best latency grows per window, since the work that is asked for changes in kind."""

LEAST_WINDOW: Final = 8
"""The fewest replies of which a latency is taken, by their median."""


def work_of(usage: Mapping[str, int]) -> float:
    """Return the units of work that a call took, roughly: one for each token generated and for 64 of the prompt."""
    return 1.0 + usage.get("completion_tokens", 0) + usage.get("prompt_tokens", 0) / 64


class Limiter:
    """The limit now, from 1 to ``most``, and the time until which nothing may be sent."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(FIRST, most))
        self._doubling = True
        self._decreased = float("-inf")
        self._held = float("-inf")
        self._best: float | None = None
        self._window: list[float] = []

    @property
    def limit(self) -> int:
        """The number of calls that may be under way."""
        return int(self._limit)

    @property
    def held_until(self) -> float:
        """The time before which the server wants no call."""
        return self._held

    def answered(self, begun: float, now: float, work: float = 1.0) -> None:
        """Note a reply to a call that was sent at ``begun``."""
        if begun < self._decreased:
            return  # it has seen the overload that is over
        self._limit = min(self._most, self._limit + (1.0 if self._doubling else 1.0 / self._limit))
        self._window.append((now - begun) / work)
        if len(self._window) >= max(LEAST_WINDOW, self.limit):
            self._look(now)

    def overloaded(self, begun: float, now: float, *, hold: float | None = None) -> None:
        """Note that a call that was sent at ``begun`` met an overload.

        ``hold`` is the time before which the server wants no call, as far as it has said so.
        """
        if hold is not None:
            self._held = max(self._held, hold)
        if begun >= self._decreased:
            self._decrease(now, AFTER_REFUSAL)

    def _look(self, now: float) -> None:
        latency = median(self._window)
        self._window.clear()
        if self._best is not None and latency > RISE * self._best:
            self._decrease(now, AFTER_RISE)
        self._best = latency if self._best is None else min(latency, self._best * FORGETTING)

    def _decrease(self, now: float, factor: float) -> None:
        self._limit = max(1.0, self._limit * factor)
        self._doubling = False
        self._decreased = now
        self._window.clear()


OPENS_AFTER: Final = 8
"""The number of failures in a row that open the circuit; more than one call is sent, so that no single one opens it."""

GIVES_UP_AFTER: Final = 8
"""The number of items in a row that end limited, after which the server is not asked on."""

FIRST_PROBE_PAUSE: Final = 1.0
LONGEST_PROBE_PAUSE: Final = 15.0
"""The seconds before the first probe, and the most between two; each pause is twice the one before."""


class Circuit:
    """The state of one server. ``verdict`` is None until the server is given up, and then the reason."""

    def __init__(self, gone_seconds: float) -> None:
        self._gone_seconds = gone_seconds
        self._failures = 0
        self._limited = 0
        self._opened: float | None = None
        self._pause = FIRST_PROBE_PAUSE
        self._next = 0.0
        self._probing = False
        self.verdict: str | None = None

    @property
    def open(self) -> bool:
        """True while the server is away."""
        return self._opened is not None

    def away(self, now: float) -> float:
        """Return for how many seconds the server has been away, 0 where it is there."""
        return 0.0 if self._opened is None else now - self._opened

    def wait_until(self) -> float | None:
        """Return when a call may be sent: a time that may be past; None while a probe is under way."""
        if self._opened is None:
            return float("-inf")
        return None if self._probing else self._next

    def sent(self) -> None:
        """Note that a call is sent."""
        self._probing = self.open

    def withdrawn(self) -> None:
        """Note that what was under way has been given up without an end."""
        self._probing = False

    def answered(self, *, limited: bool = False) -> None:
        """Note a reply, of whatever kind, from a server that works; ``limited`` says that it was no more than a 429."""
        self._failures = 0
        if not limited:
            self._limited = 0
        self._opened, self._pause, self._probing = None, FIRST_PROBE_PAUSE, False

    def failed(self, begun: float, now: float, why: str) -> None:
        """Note that a call sent at ``begun`` found no server that works."""
        if self._opened is None:
            self._failures += 1
            if self._failures >= OPENS_AFTER:
                self._opened, self._next = now, now + self._pause
            return
        if begun < self._opened:
            return  # sent before it was known: neither a probe nor news
        self._probing = False
        if self.away(now) >= self._gone_seconds:
            self.verdict = f"has not answered for {self.away(now):.0f} s ({why})"
        self._pause = min(2 * self._pause, LONGEST_PROBE_PAUSE)
        self._next = now + self._pause

    def limited(self, why: str) -> None:
        """Note that an item ended limited."""
        self._limited += 1
        if self._limited >= GIVES_UP_AFTER:
            self.verdict = f"answers none of {self._limited} items in a row ({why})"
