"""The state of a server as calls meet it: there, away for now, or gone.

Several failures in a row, without any reply between them, open the circuit: nothing is sent but a probe now and then,
which is simply the next call. Any reply closes it. A server that no probe has reached for long enough is gone. One that
has limited several items in a row to their ends (429) is not asked on either.

Pure: all times are given.
"""

from __future__ import annotations

from typing import Final

OPENS_AFTER: Final = 8
"""The number of failures in a row that open the circuit; more than one call is sent, so that no single one opens it."""

GIVES_UP_AFTER: Final = 8
"""The number of items in a row that end limited, after which the server is not asked on."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 15.0
"""The seconds before the first probe, and the most between two; each pause is twice the one before."""


class Circuit:
    """The state of one server. ``verdict`` is None until the server is given up, and then the reason."""

    def __init__(self, gone_seconds: float) -> None:
        self._gone_seconds = gone_seconds
        self._failures = 0
        self._limited = 0
        self._opened: float | None = None
        self._pause = FIRST_PAUSE
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
        self._opened, self._pause, self._probing = None, FIRST_PAUSE, False

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
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._next = now + self._pause

    def limited(self, why: str) -> None:
        """Note that an item ended limited."""
        self._limited += 1
        if self._limited >= GIVES_UP_AFTER:
            self.verdict = f"answers none of {self._limited} items in a row ({why})"
