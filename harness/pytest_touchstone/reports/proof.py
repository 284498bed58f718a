"""The report of a proof: the mutants that a suite catches, by which metric, with how many items."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pytest_touchstone.compare.gate.decide import LEAST_Z
from pytest_touchstone.compare.proof import ERRORS, MISSED, Proof, ProofCell, ProvenSuite
from pytest_touchstone.core.aggregation import LOG_ODDS
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import COMMAND, Facts, Section, Table, Verbatim
from pytest_touchstone.document.formatting import NOTHING
from pytest_touchstone.results.summary import replace_non_finite
from pytest_touchstone.statistics.verdicts import POWER

SURE: Final = (1 + NormalDist().inv_cdf(POWER) / -LEAST_Z) ** 2
"""How many times as many items show a loss in 80 % of samples, rather than in half of them."""


NamesByClass: TypeAlias = Mapping[str, Sequence[str]]
"""The names of mutants by class."""


def proof_facts(proof: Proof, survivors: Sequence[str] = ()) -> dict[str, Any]:
    """Return the whole proof; numbers that are not finite are null."""
    rows = [
        {
            **asdict(cell),
            "state": cell.state,
            "worse": cell.worse,
            "other": cell.other,
        }
        for cell in (*proof.cells, *proof.control)
    ]
    return dict(
        replace_non_finite(
            {
                "schema": SCHEMA,
                "kind": "proof",
                "checkpoint": proof.checkpoint,
                "benchmarks": dict(proof.benchmarks),
                "cells": rows,
                "suites": {"worse": proof.worse._asdict(), "other": proof.other._asdict()},
                "missed": proof.missed,
                "failed": proof.failed,
                "effects": proof.effects,
                "survivors": list(survivors),
            }
        )
    )


def proof_sections(
    proof: Proof,
    survivors: NamesByClass = MappingProxyType({}),
    failed: NamesByClass = MappingProxyType({}),
) -> list[Section]:
    """Return the report; of the classes that must be caught, ``survivors`` were missed, and ``failed`` not run."""
    names = list(proof.benchmarks)
    by_mutant: dict[str, list[ProofCell]] = {}
    for cell in (*proof.cells, *proof.control):
        by_mutant.setdefault(cell.mutant, []).append(cell)
    applicable = {name: row for name, row in by_mutant.items() if any(cell.is_measured for cell in row)}
    rows = [(row[0].kind, name, *map(_caught_text, row)) for name, row in applicable.items()]
    metric_rows = [
        (
            *(cell.benchmark, name, ", ".join(f"{test.metric} {test.z:+.1f}" for test in cell.tests)),
            NOTHING if cell.moved is None else f"{100 * cell.moved:.0f} %",
        )
        for name, row in applicable.items()
        for cell in row
        if cell.is_measured
    ]
    sizes = join_names([f"{name} ({n:,} items)" for name, n in proof.benchmarks.items()])
    headline = (
        f"proof  {proof.checkpoint} on {sizes}: {len(proof.worse.catches)} of {len(proof.applicable)} mutants are "
        f"found worse, {len(proof.other.catches)} another model"
    )
    header = ("class", "mutant", *names)
    explained = (
        "Each cell has the metrics that find the mutant worse, with about how many items that takes, and after / about "
        "how many items show that it is another model."
    )
    facts = Facts(tuple(_facts(proof, survivors, failed)))
    return [
        Section(
            key="proof",
            parts=(headline, Table(header=header, rows=tuple(rows), text_columns=2), explained, facts),
        ),
        Section(
            key="gate",
            title="The rules of a gate by the smallest suite, for pyproject.toml",
            parts=(Verbatim(tuple(gate_lines(proof.worse))),),
        ),
        Section(
            key="metrics",
            title="Every metric: standard errors, losses negative; the share of items that moved",
            parts=(
                Table(
                    header=("benchmark", "mutant", "metrics", "moved"),
                    rows=tuple(metric_rows),
                    text_columns=3,
                ),
            ),
            folded=True,
        ),
    ]


def _caught_text(cell: ProofCell) -> str:
    if not cell.is_measured:
        return "n/a" if cell.why else cell.state
    tests = sorted((test for test in cell.tests if test.is_caught), key=lambda test: test.items or 0)
    caught = [f"{test.metric} {test.items:,}" for test in tests]
    lines = [ERRORS.metric] * bool(cell.faults) + caught or [MISSED]
    return "\n".join(lines) + f" / {cell.other.items if cell.other else NOTHING}"


def suite_text(suite: ProvenSuite) -> str:
    """Return a suite as its items, benchmarks and metrics: ``14 items of piqa by bits_per_byte``."""
    parts = [
        f"{count(n, 'item')} of {name} by {' and '.join(suite.metrics[name]) or ERRORS.metric}"
        for name, n in suite.items.items()
    ]
    return join_names(parts) if parts else "nothing is caught"


def gate_lines(suite: ProvenSuite) -> Iterator[str]:
    """Yield the lines of pyproject.toml that let a gate judge by a suite's metrics.

    The log-odds have no margin of their own. Where only failed items show mutants, any metric does.
    """
    for name, metrics in filter(itemgetter(1), suite.metrics.items()):
        yield f'[tool.touchstone.gate.benchmarks."{name}"]'
        yield f"metrics = {json.dumps(metrics)}"
        yield from ["margin = 0.01"] * (LOG_ODDS in metrics)


def _facts(proof: Proof, survivors: NamesByClass, failed: NamesByClass) -> Iterator[tuple[str, str]]:
    yield "worse", f"the smallest suite: {suite_text(proof.worse)}"
    yield "another model", f"the smallest suite: {suite_text(proof.other)}"
    if items := proof.worse.items.values():
        limit = math.ceil(SURE * max(items))
        tasks = ",".join(proof.worse.items)
        yield COMMAND, f"touchstone run --tasks {tasks} --eval-limit {limit} --checkpoint NEW --gate"
    if proof.missed:
        yield MISSED, join_names(proof.missed)
    reasons = {
        cell.mutant: cell.why for cell in proof.cells if cell.why and cell.mutant not in proof.applicable
    }
    yield from (("n/a", f"{name}: {why}") for name, why in reasons.items())
    errors = {cell.mutant: cell.error for cell in proof.cells if cell.error}
    yield from (("not run", f"{name}: could not be run: {error}") for name, error in errors.items())
    for kind, names in survivors.items():
        yield "failed", f"{kind} must be caught, and survive: {join_names(list(names))}"
    for kind, names in failed.items():
        yield "not valid", f"{kind} must be caught, and could not be run: {join_names(list(names))}"
