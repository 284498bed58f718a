"""What each measure says of every item, from the log-probabilities in a run's journal.

The choices' log-probabilities are taken in the normalisation of the benchmark's primary metric: as they are for
``acc``, per character for ``acc_norm``. Of these, t, with the right one r, and the others o:

- ``p_right`` at a temperature T: exp(t_r / T) / sum of exp(t_i / T) over all choices;
- ``log_odds``: log(p / (1 - p)) of that probability at T = 1;
- ``logprob_margin``: t_r - max t_o;
- ``soft``: its signed rank.

``accuracy`` is the primary metric itself, to which ``p_right`` comes as T goes to 0. ``bits_per_byte`` are those of the
right answer, with the opposite sign here, so that more is better everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from pytest_touchstone.core.aggregation import BITS_PER_BYTE, SOFT
from pytest_touchstone.results.journal import iter_records
from pytest_touchstone.results.records import Record
from pytest_touchstone.statistics.paired import signed_ranks

TEMPERATURES: Final = tuple(float(f"{10 ** (place / 8):.3g}") for place in range(-24, 13))
"""From 0.001 to 31.6, eight to a decade."""

PRIMARY: Final[Mapping[str, str]] = {
    "arc_easy": "acc",
    "arc_challenge": "acc_norm",
    "hellaswag": "acc_norm",
    "openbookqa": "acc_norm",
    "piqa": "acc_norm",
    "winogrande": "acc",
}


Numbers: TypeAlias = Any
"""An array of numpy, whose types tell no more than this."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a checkpoint to a benchmark's items, in the order of their names.

    ``right`` and ``wrong`` are normalised log-probabilities; ``wrong`` has a column per wrong choice, minus infinity
    where an item has fewer.
    """

    names: tuple[str, ...]
    accuracy: Numbers
    bits: Numbers
    right: Numbers
    wrong: Numbers

    def only(self, names: Collection[str]) -> Answers:
        """Return the answers to these items."""
        if len(names) == len(self.names):
            return self
        kept = [place for place, name in enumerate(self.names) if name in names]
        return Answers(
            tuple(self.names[place] for place in kept),
            self.accuracy[kept],
            self.bits[kept],
            self.right[kept],
            self.wrong[kept],
        )

    def measure(self, name: str, temperature: float = 1.0) -> Numbers:
        """Return the measure of every item; ``temperature`` counts for ``p_right`` alone."""
        if name == "accuracy":
            return self.accuracy
        if name == BITS_PER_BYTE:
            return self.bits
        if name in ("logprob_margin", SOFT):
            margins = self.right - self.wrong.max(axis=1)
            return np.array(signed_ranks(margins)) if name == SOFT else margins
        if name == "log_odds":
            return self.right - np.logaddexp.reduce(self.wrong, axis=1)
        odds = self.right / temperature - np.logaddexp.reduce(self.wrong / temperature, axis=1)
        return 0.5 * (1 + np.tanh(odds / 2))


def answers_of(records: Iterable[Record], primary: str) -> Answers:
    """Return the answers in the records, all of one benchmark and checkpoint."""
    found = sorted((one for one in records if one.status == "scored"), key=_place)
    rights, wrongs = [], []
    for record in found:
        choices = [_normalised(one, primary) for one in record.exchanges]
        (gold,) = (record.facts or {})["right"]
        rights.append(choices.pop(gold))
        wrongs.append(choices)
    wrong = np.full((len(found), max(map(len, wrongs))), -np.inf)
    for row, choices in enumerate(wrongs):
        wrong[row, : len(choices)] = choices
    return Answers(
        tuple(one.example for one in found),
        np.array([one.scores[primary] for one in found]),
        -np.array([one.scores[BITS_PER_BYTE] for one in found]),
        np.array(rights),
        wrong,
    )


def _place(record: Record) -> tuple[str, int]:
    benchmark, _, number = record.example.rpartition("/")
    return benchmark, int(number) if number.isdigit() else 0


def _normalised(exchange: Mapping[str, Mapping[str, object]], primary: str) -> float:
    logprob = float(str(exchange["answer"]["logprob"]))
    length = len(str(exchange["request"]["continuation"])) - 1  # without the space before the choice
    return logprob / max(length, 1) if primary == "acc_norm" else logprob


def read(runs: Path) -> dict[str, dict[str, dict[int, Answers]]]:
    """Return the answers by benchmark, series and number of the checkpoint, of all runs in the folder, whole or not.

    A run's name begins with that of its series. Answers that a run took from an earlier one are in that one's journal.
    """
    kept: dict[tuple[str, str, int], dict[str, Record]] = {}
    for run in sorted(path.parent for path in runs.glob("*/run.json")):
        for record in iter_records(run):
            if record.benchmark in PRIMARY and record.exchanges:
                number = int(record.checkpoint.rpartition("-")[2])
                key = (record.benchmark, run.name.partition(".")[0], number)
                kept.setdefault(key, {})[record.example] = record
    found: dict[str, dict[str, dict[int, Answers]]] = {}
    for (benchmark, series, number), records in sorted(kept.items()):
        answers = answers_of(records.values(), PRIMARY[benchmark])
        found.setdefault(benchmark, {}).setdefault(series, {})[number] = answers
    return found
