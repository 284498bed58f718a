"""``Asking``: the options of one benchmark alone, from the demonstration or from a file of ``--eval-config``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from pytest_touchstone.core.requests import Generate, Request

PRIORITIES: Final = ("high", "medium", "low")
"""The order in which benchmarks run."""

ROWS: Final = ("limit", "shots", "max_new_tokens")
"""The settings of a run that a benchmark may have for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The options of one benchmark, in place of the run's: ``--eval-limit``, ``--eval-shots`` and
    ``--eval-max-new-tokens``; and those that only it has.

    ``left_out`` is the reason for which the benchmark is not asked at all. ``seconds`` is the time after which its
    items end as ``timeout``. Without ``samples`` the journal keeps neither prompts nor answers. ``metrics`` are those
    that the benchmark's own log shows (all for none), ``output_path`` is a further place for its results.
    """

    limit: int | float | str | None = None
    shots: int | None = None
    max_new_tokens: int | None = None
    left_out: str = ""
    priority: str = "medium"
    seconds: float | None = None
    samples: bool = True
    metrics: tuple[str, ...] = ()
    output_path: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not the run's, as a manifest names them."""
        return {name: value for name in ROWS if (value := getattr(self, name)) is not None}

    def without(self, names: Collection[str]) -> Asking:
        """Return the same without the options that were given by hand for the whole run."""
        dropped: dict[str, Any] = dict.fromkeys(name for name in ROWS if name in names)
        return replace(self, **dropped)

    def request(self, request: Request) -> Request:
        """Return a request as the engine gets it."""
        if self.max_new_tokens is None or not isinstance(request, Generate):
            return request
        return replace(request, max_new_tokens=self.max_new_tokens, turns_max_new_tokens=None)


AS_THE_RUN: Final = Asking()
