"""The demonstration: what a run asks of the builtin checkpoints if neither a checkpoint nor a limit is given.

``demonstration.toml`` beside the shipped benchmarks has a table for each of them: its options, as if they had been
given for this benchmark alone, or the reason for which it is left out. Benchmarks without a table are asked whole.
"""

from __future__ import annotations

import functools
import shlex
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.core.benchmark import Benchmark
from harness.core.requests import Generate, Request
from harness.core.resources import shipped_evals

FILE: Final = "demonstration.toml"

EVERYTHING: Final = "--eval-limit all"
OWN: Final = "--checkpoint PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The options of one benchmark alone, in place of the run's: ``--eval-limit`` and ``--eval-max-new-tokens``.

    ``left_out`` is the reason for which the benchmark is not asked at all.
    """

    limit: int | None = None
    max_new_tokens: int | None = None
    left_out: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not the run's, as a manifest names them."""
        named = {"limit": self.limit, "max_new_tokens": self.max_new_tokens}
        return {name: value for name, value in named.items() if value is not None}

    def without(self, names: Collection[str]) -> Asking:
        """Return the same without the options that were given by hand for the whole run."""
        left = {name: value for name, value in self.settings.items() if name not in names}
        return Asking(**left, left_out=self.left_out)

    def request(self, request: Request) -> Request:
        """Return a request as the engine gets it."""
        if self.max_new_tokens is None or not isinstance(request, Generate):
            return request
        return replace(request, max_new_tokens=self.max_new_tokens, turns_max_new_tokens=None)


AS_THE_RUN: Final = Asking()


def asking_of(spec: Benchmark) -> Asking:
    """Return the options of a benchmark in the demonstration."""
    table = _table(shipped_evals() / FILE)
    ours = spec.name in table and spec.folder.resolve() == shipped_evals()
    return table[spec.name] if ours else AS_THE_RUN


@functools.cache
def _table(path: Path) -> Mapping[str, Asking]:
    if not path.is_file():
        return {}
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return MappingProxyType({name: Asking(**row) for name, row in rows.items()})


def told(command: Sequence[str], settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what a manifest and reports say: ``what`` the run is, and the commands for ``all`` rows and for a
    checkpoint of one's ``own``.

    ``command`` are the arguments of pytest, ``settings`` those of each benchmark.
    """
    call = shlex.join(["pytest", *command])
    texts = sorted({one["limit"] for one in settings if one.keys() >= {"limit", "max_new_tokens"}})
    rows = " to ".join(str(limit) for limit in dict.fromkeys((*texts[:1], *texts[-1:])))
    sizes = (
        f"{rows} rows of benchmarks that ask for texts, samples of the others"
        if rows
        else "samples of benchmarks"
    )
    return {
        "what": f"demonstration on the builtin checkpoints: {sizes}",
        "all": f"{call} {EVERYTHING}",
        "own": f"{call} {OWN}",
    }


def as_line(told: Mapping[str, str]) -> str:
    """Return it all as one line."""
    return f"{told['what']} (all rows: {told['all']}; your own: {told['own']})"
