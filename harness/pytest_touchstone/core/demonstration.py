"""The demonstration: what a run asks of the builtin checkpoints if neither a checkpoint nor a limit is given.

``demonstration.toml`` beside the shipped benchmarks has a table for each of them: its options, as if they had been
given for this benchmark alone, or the reason for which it is left out. The table ``"*"`` is for shipped benchmarks
without one of their own; other people's are asked whole.
"""

from __future__ import annotations

import functools
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pytest_touchstone.core.asking import AS_THE_RUN, Asking
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.resources import shipped_evals

FILE: Final = "demonstration.toml"

REST: Final = "*"
"""The table of the shipped benchmarks that have none of their own."""

EVERYTHING: Final = "--eval-limit all"
OWN: Final = "--checkpoint PATH"

LEFT_OUT: Final = "left out of the demonstration: "
"""The beginning of the reason for which a benchmark is left out, before that of the table."""

INCLUDED_WITH: Final = f"included with {EVERYTHING}"
"""The remedy there."""


def asking_of(spec: Benchmark) -> Asking:
    """Return the options of a benchmark in the demonstration."""
    if spec.folder.resolve() != shipped_evals():
        return AS_THE_RUN
    table = _table(shipped_evals() / FILE)
    return table.get(spec.name, table.get(REST, AS_THE_RUN))


@functools.cache
def _table(path: Path) -> Mapping[str, Asking]:
    if not path.is_file():
        return {}
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return MappingProxyType({name: Asking(**row) for name, row in rows.items()})


def told(command: Sequence[str], settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what a manifest and reports say: ``what`` the run is, and the commands for ``all`` rows and for a
    checkpoint of one's ``own``.

    ``command`` are the words of the command that was given, ``settings`` those of each benchmark.
    """
    call = shlex.join(command)
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
