"""``--items BENCHMARK=N,...``: numbers of items that a results file does not give."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from harness.errors import DataError
from harness.imports.naming import listed
from harness.reports.by_checkpoint import SETS

_SHORT: Final = {**SETS, "real": "real_coref"}


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """The number of items by benchmark; raises ``DataError`` for anything else."""
    found: dict[str, int] = {}
    for part in (one.strip() for text in texts for one in text.split(",")):
        name, _, count = (piece.strip() for piece in part.partition("="))
        if not name or not re.fullmatch(r"[1-9]\d*", count):
            raise DataError(f"--items: {part!r} is no BENCHMARK=N, such as real_coref=2400,ko_lambada=600")
        found[_SHORT.get(name, name)] = int(count)
    return found


def check_sizes(sizes: Iterable[str], benchmarks: Iterable[str]) -> None:
    """Raises ``DataError`` for a size of a benchmark that the results do not have."""
    known = list(benchmarks)
    if strangers := [name for name in sizes if name not in known]:
        raise DataError(
            f"--items: no benchmark {strangers[0]!r} in these results; there are: {listed(known)}"
        )
