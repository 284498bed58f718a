"""The difference between two runs as far as it is known, which every test returns, and its unit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal, NamedTuple

TINY: Final = 1e-9
"""Below this, a difference is a rounding error."""


def fixed(value: float, digits: int, whole: float = 1.0) -> str:
    """Return the value with this number of digits after the point; 0 has no sign.

    A value that is not quite ``whole`` is not rounded to it, nor is one that is not quite 0.
    """
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        return f"{value:.1g}" if abs(value) > TINY else f"{0:.{digits}f}"
    if abs(float(text)) == whole > abs(value) + TINY:
        return f"{math.copysign(whole - 10**-digits, value):.{digits}f}"
    return text


class MetricUnit(NamedTuple):
    """The unit of a metric, with an empty name if it has none.

    A difference is shown times ``factor``, with ``digits`` after the point.
    """

    name: str
    factor: float = 1.0
    digits: int = 4

    def moved(self, difference: float | None) -> str:
        """Return the difference with its sign: ``-1.37``; ``-`` for None."""
        if difference is None:
            return "-"
        number = self.factor * difference
        if self is not POINTS and TINY <= abs(number) < 10**-self.digits:
            return f"{number:+.2g}"  # a slope per step
        return f"{round(number, self.digits) or 0.0:+.{self.digits}f}"  # no -0.00

    def told(self, difference: float | None) -> str:
        """Return the difference with its sign and unit: ``-1.37 points``, ``+0.0123 bits``."""
        return self._named(self.moved(difference))

    def size(self, size: float) -> str:
        """Return a size with its unit and no sign: ``1 point``, ``2.5 points``, ``0.01 bits``."""
        number = f"{self.factor * size:g}"
        return "1 point" if (number, self.name) == ("1", POINTS.name) else self._named(number)

    def _named(self, number: str) -> str:
        return f"{number} {self.name}".rstrip()


POINTS: Final = MetricUnit("points", 100.0, 2)


def unit_of(name: str, *, share: bool) -> MetricUnit:
    """Return the unit of this name; with ``share``, a fraction of 1 is shown in points."""
    return POINTS if share and name in ("", POINTS.name) else MetricUnit(name)


# Differences

LEVEL: Final = 0.95

VerdictKind = Literal["worse", "better", "not worse", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A new run against a baseline: values, difference (new - baseline), its interval, the test, and the verdict.

    ``p`` is two-sided. ``n`` counts the items (the smaller number where the runs have their own), ``units`` the
    independent ones: clusters, where items share a text. ``flips`` counts the items that only the new run, and only
    the baseline, has right; None where values are not right or wrong. Undefined values are None, with
    ``why``; ``why`` may also name an assumption. ``unit`` is the metric's own, empty for shares and what names none.

    Once it is judged (``statistics.verdicts``) it has a ``verdict`` by its ``margin``, and ``why`` is the reason of
    that. ``p_adjusted`` is Holm's over ``family`` tested benchmarks, None where there was no test. ``items_to_tell`` is
    about how many items would tell no difference from one of the margin with power 0.8; for "inconclusive" only.
    """

    baseline: float | None = None
    new: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    stderr: float | None = None
    p: float | None = None
    n: int
    units: int
    method: str = "none"
    flips: tuple[int, int] | None = None
    level: float = LEVEL
    why: str = ""
    higher_is_better: bool = True
    unit: str = ""
    verdict: VerdictKind | None = None
    margin: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    items_to_tell: int | None = None

    @property
    def oriented(self) -> Comparison:
        """Return the comparison turned so that larger is better: for an error rate, the rates of right answers."""
        return self if self.higher_is_better else self.mirrored()

    @property
    def z(self) -> float:
        """Return the difference in standard errors; 0 if undefined."""
        return (self.difference or 0.0) / self.stderr if self.stderr else 0.0

    @property
    def told_in(self) -> MetricUnit:
        """Return the unit of differences: points of shares and log-probabilities, not above 1."""
        return unit_of(
            self.unit, share=all(value is None or value <= 1 for value in (self.baseline, self.new))
        )

    @property
    def turned(self) -> Comparison:
        """Return the comparison of the baseline with the new run."""
        return replace(
            self,
            baseline=self.new,
            new=self.baseline,
            difference=None if self.difference is None else -self.difference,
            low=None if self.high is None else -self.high,
            high=None if self.low is None else -self.low,
            flips=None if self.flips is None else self.flips[::-1],
        )

    def mirrored(self, top: float = 0.0) -> Comparison:
        """Return the comparison of the values subtracted from ``top``, which reverses the better direction."""
        return replace(
            self,
            baseline=None if self.baseline is None else top - self.baseline,
            new=None if self.new is None else top - self.new,
            difference=None if self.difference is None else -self.difference,
            low=None if self.high is None else -self.high,
            high=None if self.low is None else -self.low,
            higher_is_better=not self.higher_is_better,
        )


def undefined(why: str, *, n: int = 0, level: float = LEVEL, new: float | None = None) -> Comparison:
    """Return a comparison without a difference, with the reason and perhaps the ``new`` value."""
    return Comparison(new=new, n=n, units=n, level=level, why=why)


LARGEST: Final = 1e100
"""Beyond this, products of scores are larger than a float can be."""

TOO_LARGE: Final = "scores beyond 1e100 are too large for a mean"


def are_too_large(values: Iterable[float]) -> bool:
    """Return whether any value is beyond ``LARGEST``."""
    return any(abs(value) > LARGEST for value in values)


def check_finite(name: str, values: Sequence[float]) -> None:
    """Raise ``ValueError`` naming the first value that is not a finite number."""
    if all(map(math.isfinite, values)):  # the usual case, which is quick to tell
        return
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"{name} has the value {value} at place {index}; leave out what has no score")


def z_quantile(level: float) -> float:
    """Return the half width of a two-sided normal interval of this level, in standard errors."""
    return NormalDist().inv_cdf((1 + level) / 2)
