"""How differences of a metric are told: shares in points, hundredths of them; others in the metric's own unit.

Every report, verdict and margin goes by these, so that no 0.3 bits are thirty points.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

TINY: Final = 1e-9
"""Below this, a difference is a rounding error."""


def fixed(value: float, digits: int, whole: float = 1.0) -> str:
    """The value with so many digits after the point. What is not quite ``whole`` is not rounded to it, nor is what is
    not quite 0; 0 has no sign."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        return f"{value:.1g}" if abs(value) > TINY else f"{0:.{digits}f}"
    if abs(float(text)) == whole > abs(value) + TINY:
        return f"{math.copysign(whole - 10**-digits, value):.{digits}f}"
    return text


class MetricUnit(NamedTuple):
    """A unit by its name, empty for a metric that names none: a difference is told times ``factor``, with so many
    ``digits`` after the point."""

    name: str
    factor: float = 1.0
    digits: int = 4

    def moved(self, difference: float | None) -> str:
        """The difference with its sign: ``-1.37``; ``-`` for None."""
        if difference is None:
            return "-"
        number = self.factor * difference
        if self is not POINTS and TINY <= abs(number) < 10**-self.digits:
            return f"{number:+.2g}"  # a slope per step
        return f"{round(number, self.digits) or 0.0:+.{self.digits}f}"  # no -0.00

    def told(self, difference: float | None) -> str:
        """The same with the unit: ``-1.37 points``, ``+0.0123 bits``."""
        return self._named(self.moved(difference))

    def size(self, size: float) -> str:
        """A size without a sign: ``1 point``, ``2.5 points``, ``0.01 bits``."""
        number = f"{self.factor * size:g}"
        return "1 point" if (number, self.name) == ("1", POINTS.name) else self._named(number)

    def _named(self, number: str) -> str:
        return f"{number} {self.name}".rstrip()


POINTS: Final = MetricUnit("points", 100.0, 2)


def unit_of(name: str, *, share: bool) -> MetricUnit:
    """The unit of a metric that names this one, or none; ``share``: its values may be shares of 1."""
    return POINTS if share and name in ("", POINTS.name) else MetricUnit(name)
