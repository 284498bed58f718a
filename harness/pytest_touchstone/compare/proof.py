"""What a suite notices of a damaged checkpoint: a mutant's results against those of the sound model, item by item.

Two questions are answered apart:

- **Worse?** Paired differences of the primary metric, the soft score, the log-odds and bits per byte, in standard
  errors, each turned so that a loss is negative. A mutant is caught from ``LEAST_Z`` on; with z standard errors on n
  items it would take n (``LEAST_Z`` / z)^2.
- **Another model?** The mean absolute change of an item's log-probabilities over its requests, which no cancelling
  hides. An item has moved if that is beyond the 95 % quantile of the same model with other rounding. The quantile is
  taken of one half of the items and held against the other: with k of m changes below it and k = ceil(0.95 (m + 1)),
  an item of an equal model moves with a chance of at most 5 % (split conformal prediction: Vovk et al. 2005).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import compare
from pytest_touchstone.compare.formats.run import read_run
from pytest_touchstone.compare.gate.decide import LEAST_Z
from pytest_touchstone.core.aggregation import BITS_PER_BYTE, LOG_ODDS, SOFT
from pytest_touchstone.core.errors import GateError, HarnessError
from pytest_touchstone.core.files import adapter_of, check_kind, read_json, shown_path
from pytest_touchstone.core.text import one_line
from pytest_touchstone.results.journal import iter_records

QUANTILE: Final = 0.95
MOST_ITEMS: Final = 10_000
MISSED: Final = "missed"

Loss = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A loss in the unit of its metric."""

Logprobs = Mapping[str, Sequence[float]]
"""The log-probabilities (nats) of an item's requests, by the item's example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTest:
    """A metric's paired difference, turned so that a loss is negative.

    ``items`` is about how many items would show it; None where it is no loss.
    """

    metric: str
    difference: float
    z: float
    items: int | None

    @property
    def is_caught(self) -> bool:
        """Return whether the loss is beyond chance."""
        return self.z <= LEAST_Z


class Catch(NamedTuple):
    """About how many items show a mutant, and by which metric."""

    items: int
    metric: str


ERRORS: Final = Catch(1, "failed items")
"""Failed items are visible without a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofCell:
    """A mutant on a benchmark; ``why`` says why it is not applicable there, and is empty where it is.

    ``error`` says why it could not be run there, and is empty where it was or is not applicable.
    ``moved`` is the share of items whose log-probabilities moved, None without any; ``items_to_move`` is about how
    many items show that it is another model. ``faults`` counts items that only the mutant has in error.
    """

    mutant: str
    kind: str
    benchmark: str
    why: str = ""
    error: str = ""
    n: int = 0
    tests: tuple[MetricTest, ...] = ()
    moved: float | None = None
    items_to_move: int | None = None
    faults: int = 0

    @property
    def is_measured(self) -> bool:
        """Return whether the mutant is applicable there, and was run."""
        return not (self.why or self.error)

    @property
    def state(self) -> str:
        """Return "not run", "not applicable", "caught" or "missed"."""
        unmeasured = "not run" if self.error else "not applicable"
        return unmeasured if not self.is_measured else MISSED if self.worse is None else "caught"

    @property
    def worse(self) -> Catch | None:
        """Return what shows the loss with the fewest items; None where nothing caught it."""
        caught = (Catch(test.items or 1, test.metric) for test in self.tests if test.is_caught)
        return ERRORS if self.faults else min(caught, default=None)

    @property
    def other(self) -> Catch | None:
        """Return what shows another model; None where too few items moved."""
        items = self.items_to_move or math.inf
        return ERRORS if self.faults else Catch(int(items), "log-probabilities") if items <= self.n else None


class ProvenSuite(NamedTuple):
    """The fewest benchmarks that catch all that can be caught, with items and metrics of each, and the mutants."""

    items: dict[str, int]
    metrics: dict[str, list[str]]
    catches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a suite catches of a checkpoint's mutants.

    ``cells`` has every mutant on every benchmark; ``control`` has the model with other rounding, whose shares of moved
    items hold for equal models.
    """

    checkpoint: str
    benchmarks: Mapping[str, int]
    cells: tuple[ProofCell, ...]
    control: tuple[ProofCell, ...]

    @property
    def applicable(self) -> dict[str, str]:
        """Return the class of each mutant that applies to any benchmark, and was run on it."""
        return {cell.mutant: cell.kind for cell in self.cells if cell.is_measured}

    @property
    def worse(self) -> ProvenSuite:
        """Return the suite that answers the first question."""
        return smallest_suite({cell: cell.worse for cell in self.cells})

    @property
    def other(self) -> ProvenSuite:
        """Return the suite that answers the second question."""
        return smallest_suite({cell: cell.other for cell in self.cells})

    @property
    def missed(self) -> list[str]:
        """Return the mutants that no benchmark finds worse."""
        catches = self.worse.catches
        return [name for name in self.applicable if name not in catches]

    @property
    def failed(self) -> dict[str, str]:
        """Return why mutants that nothing caught could not be run, where that was so."""
        catches = self.worse.catches
        return {cell.mutant: cell.error for cell in self.cells if cell.error and cell.mutant not in catches}

    @property
    def effects(self) -> dict[str, dict[str, float]]:
        """Return the smallest loss that was caught, by benchmark and metric, in the metric's unit."""
        tests = [(test.difference, cell.benchmark, test) for cell in self.cells for test in cell.tests]
        effects: dict[str, dict[str, float]] = {}
        for difference, name, test in sorted(tests, key=lambda row: row[0]):
            if test.is_caught:
                effects.setdefault(name, {})[test.metric] = -difference
        return effects


def smallest_suite(catches: Mapping[ProofCell, Catch | None]) -> ProvenSuite:
    """Return the fewest benchmarks, then those of few items, that catch every mutant that any benchmark catches."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    caught: dict[str, dict[str, Catch]] = {}
    for cell, catch in catches.items():
        if catch is not None:
            caught.setdefault(cell.mutant, {})[cell.benchmark] = catch
    names = list(dict.fromkeys(name for row in caught.values() for name in row))
    if not names:
        return _suite_of(caught, [])
    # A set cover: a benchmark costs 1, and its items a small part of that.
    most = [max(row[name].items for row in caught.values() if name in row) for name in names]
    cover = milp(
        [1 + items / (1 + sum(most)) for items in most],
        constraints=LinearConstraint(
            [[float(name in row) for name in names] for row in caught.values()], lb=1
        ),
        bounds=Bounds(0, 1),
        integrality=[1] * len(names),
        options={"mip_rel_gap": 0},
    ).x
    assert cover is not None, "all benchmarks together catch all"
    return _suite_of(caught, [name for name, share in zip(names, cover, strict=True) if share > 0.5])


def _suite_of(caught: Mapping[str, Mapping[str, Catch]], chosen: Sequence[str]) -> ProvenSuite:
    """Return the suite of the chosen benchmarks, each with the mutants that it catches with the fewest items."""
    rows = [[(row[name], name) for name in chosen if name in row] for row in caught.values()]
    best = {name: [catch for catch, other in map(min, rows) if other == name] for name in chosen}
    items = {name: max([catch.items for catch in some], default=0) for name, some in best.items()}
    metrics = {
        name: sorted({catch.metric for catch in some if catch != ERRORS}) for name, some in best.items()
    }
    return ProvenSuite(items, metrics, tuple(caught))


# The cells of a mutant


class RunScores(NamedTuple):
    """A run of one checkpoint: its results, and its log-probabilities, by benchmark."""

    entries: Mapping[str, BenchmarkScores]
    logprobs: Mapping[str, Logprobs]


def read_scores(folder: Path) -> RunScores:
    """Return the scores of a run's only checkpoint, none where no item was scored. Raises ``HarnessError``."""
    candidates = read_run(folder)
    logprobs: dict[str, dict[str, list[float]]] = {}
    for record in iter_records(folder):
        answers = [exchange["answer"] for exchange in record.exchanges]
        if answers and all("logprob" in answer for answer in answers):
            values = [float(answer["logprob"]) for answer in answers]
            logprobs.setdefault(record.benchmark, {})[record.example] = values
    return RunScores(candidates[0].entries if candidates else {}, logprobs)


def measure(cell: ProofCell, sound: RunScores, damaged: RunScores, control: Mapping[str, float]) -> ProofCell:
    """Return the cell of a mutant that applies with what its run shows.

    ``control`` has the changes of each item's log-probabilities by other rounding.
    """
    name = cell.benchmark
    before, after = sound.entries[name], damaged.entries.get(name)
    changes = logprob_changes(sound.logprobs.get(name, {}), damaged.logprobs.get(name, {}))
    moved = share_moved(changes, control) if changes and control else None
    return replace(
        cell,
        n=before.saved.scored,
        tests=() if after is None else _tests(after, before),
        moved=moved,
        items_to_move=None if moved is None else items_that_show(moved),
        faults=max(0, before.saved.scored - (0 if after is None else after.saved.scored)),
    )


def _tests(damaged: BenchmarkScores, sound: BenchmarkScores) -> tuple[MetricTest, ...]:
    """Return the tests of the metrics that both results have, the primary one first."""
    names = dict.fromkeys((sound.saved.primary, SOFT, LOG_ODDS, BITS_PER_BYTE))
    both = [name for name in names if name in sound.saved.metrics and name in damaged.saved.metrics]
    compared = {name: compare(damaged, [sound], name).comparison.oriented for name in both}
    return tuple(
        MetricTest(
            metric=name,
            difference=comparison.difference or 0.0,
            z=comparison.z,
            items=math.ceil(comparison.n * (LEAST_Z / comparison.z) ** 2) if comparison.z < 0 else None,
        )
        for name, comparison in compared.items()
    )


def logprob_changes(sound: Logprobs, damaged: Logprobs) -> dict[str, float]:
    """Return the mean absolute change of each item's log-probabilities, of those that both have."""
    return {
        example: fmean(
            0.0 if before == after else abs(before - after)
            for before, after in zip(values, damaged[example], strict=True)
        )
        for example, values in sound.items()
        if len(damaged.get(example, ())) == len(values)
    }


def share_moved(changes: Mapping[str, float], control: Mapping[str, float]) -> float:
    """Return the share of items that changed by more than the quantile of the control's other half."""
    halves = [sorted(control)[0::2], sorted(control)[1::2]]
    limits = [_upper_limit([control[example] for example in half]) for half in halves]
    half_of = {example: index for index, half in enumerate(halves) for example in half}
    moved = [
        change > limits[1 - half_of[example]] for example, change in changes.items() if example in half_of
    ]
    return fmean(moved) if moved else 0.0


def _upper_limit(changes: Sequence[float]) -> float:
    """Return the conformal quantile of the changes: infinite for fewer than 19."""
    rank = math.ceil(QUANTILE * (len(changes) + 1))
    return sorted(changes)[rank - 1] if rank <= len(changes) else math.inf


def items_that_show(share: float) -> int | None:
    """Return how many items show a share that moves: as many in an equal model have a chance like ``LEAST_Z``."""
    from scipy.special import bdtrc

    chance = NormalDist().cdf(LEAST_Z)
    moved = ((n, math.floor(share * n + 1e-9)) for n in range(1, MOST_ITEMS))
    return next((n for n, count in moved if count and bdtrc(count - 1, n, 1 - QUANTILE) <= chance), None)


# A proof's file


def read_effects(path: Path) -> dict[str, dict[str, float]]:
    """Return the ``effects`` in the file of a proof. Raises ``GateError`` for any other file."""
    try:
        facts = read_json(path)
        check_kind(facts, "proof")
        return dict(adapter_of(dict[str, dict[str, Loss]]).validate_python(facts.get("effects")))
    except (OSError, ValueError, HarnessError) as error:
        reason = one_line(str(error))
        raise GateError(
            f"{shown_path(path)}: is not the proof.json of touchstone proof -o DIR ({reason})"
        ) from None
