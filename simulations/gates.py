"""Gates in memory, for simulations: saved results made of columns of scores, and the product's own decision on them.

Nothing here judges: ``failed`` is what ``compare.gate.decide`` finds, whose exit code ends ``pytest --gate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import EarlyVerdict, cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, stored_result
from pytest_touchstone.results.summary import Declaration, Metric

METRIC: Final = "acc"
PLAIN: Final = GateConfig(mode="plain")
STRICT: Final = GateConfig(mode="strict")


@dataclass(slots=True)
class Bench:
    """The items of a benchmark, which all its results share; ``clusters`` says which of them share a text."""

    name: str
    n: int
    clusters: Sequence[str] | None = None
    examples: list[str] = field(init=False)
    rows: list[str] = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        self.examples = [f"{self.name}/{place:05}" for place in range(self.n)]
        self.rows = [f"{place:016x}" for place in range(self.n)]
        self.digest = self.items(np.zeros(self.n)).digest()

    @property
    def declaration(self) -> Declaration:
        """The benchmark as a run declares it."""
        dataset = DatasetInfo(name=self.name, origin="", path="", rows=self.n, sha256="d" * 64)
        return Declaration(name=self.name, version=1, primary=METRIC, dataset=dataset)

    def items(self, right: np.ndarray | Mapping[str, np.ndarray]) -> ItemScores:
        """Return the saved items of a result: right or wrong for each, or several scores by name."""
        scores = right if isinstance(right, Mapping) else {METRIC: right}
        return ItemScores(
            examples=self.examples,
            rows=self.rows,
            groups=[None] * self.n,
            clusters=[None] * self.n if self.clusters is None else list(self.clusters),
            scores={name: np.asarray(one, dtype=float).tolist() for name, one in scores.items()},
        )

    def result(
        self,
        right: np.ndarray | Mapping[str, np.ndarray],
        checkpoint: str,
        *,
        began: float = 0.0,
        asked: int | None = None,
    ) -> BenchmarkScores:
        """Return a result of a checkpoint, whose name is its fingerprint, with the scores of ``items``; ``asked``: the
        number of items asked, if not all."""
        items = self.items(right)
        asked = self.n if asked is None else asked
        return BenchmarkScores(_saved(self, items, checkpoint, began, asked), items)


def _saved(bench: Bench, items: ItemScores, checkpoint: str, began: float, asked: int) -> StoredResult:
    metrics = {name: _metric(name, column, asked) for name, column in items.scores.items()}
    manifest = manifest_of(checkpoint, began)
    whole = stored_result(
        bench.declaration,
        manifest,
        manifest["checkpoints"][0],
        run_id=f"run of {checkpoint} at {began}",
        directory="",
        checkpoint=checkpoint,
        chat=False,
        metrics=metrics,
        collected=bench.n,
    )
    return replace(whole, scored=asked, skipped=bench.n - asked, items_sha256=bench.digest)


def _metric(name: str, column: Sequence[float | None], asked: int) -> Metric:
    value = float(np.mean(np.asarray(column, dtype=float)))
    return Metric(name=name, value=value, low=None, high=None, stderr=None, n=asked, method="mean")


def manifest_of(checkpoint: str, began: float) -> dict[str, Any]:
    """Return the manifest of a run of a checkpoint, as far as results depend on it."""
    row = {"name": checkpoint, "fingerprint": checkpoint.encode().hex()}
    return {"began": began, "checkpoints": [row]}


def source_of(earlier: Sequence[BenchmarkScores]) -> BaselineSource:
    """Return the saved results of a folder, as ``--baseline best`` has them."""
    items = {id(one.saved): one.items for one in earlier}
    return BaselineSource(
        name="best",
        kind="best",
        saved=[one.saved for one in earlier],
        items=lambda saved: items[id(saved)],
    )


def gate_of(
    new: Sequence[BenchmarkScores],
    earlier: Sequence[BenchmarkScores],
    plan: GateConfig = PLAIN,
    early: Mapping[tuple[str, str], EarlyVerdict] | None = None,
) -> GateResult:
    """Return the decision of ``pytest --gate`` on these results."""
    return decide(cases_of(new, []), source_of(earlier), plan, early or {})


def failed(gate: GateResult) -> bool:
    """Return whether the run ends with exit code 8. Raises ``AssertionError`` where nothing could be said: a
    simulation gives no reason for that."""
    assert gate.exit_code in (0, ExitCode.WORSE), gate
    return gate.exit_code == ExitCode.WORSE
