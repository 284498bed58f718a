"""The findings of a gate as plain data: the section ``gate`` of ``summary.json``, which reports show.

    {"schema": 1, "mode": "plain", "baseline": "best", "margin": 0.01, "alpha": 0.05, "exit_code": 8,
     "decision": "failed", "text": "...", "notes": [...], "lines": [{...}, ...], "pooled": [{...}]}

A line is one benchmark (or composite) of one checkpoint; ``pooled`` has one of all items together for each checkpoint,
which is among ``lines`` too where it may fail the gate. Numbers are shares, not points; what is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison, line_of, plain_line
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.results.summary import replace_non_finite
from pytest_touchstone.statistics.power import design_of_comparison, smallest_drop

KINDS: Final = (
    *("not valid", "not judged", "worse", "failed", "accepted", "inconclusive", "not compared", "first"),
    *("no baseline", "not worse", "better"),
)
"""The kinds of line, the most pressing first. "failed": by a floor or max_drop, whatever the verdict; "accepted": it
would fail, but for a drop that somebody has accepted."""

UNSURE: Final = ("inconclusive", "not compared")
"""The kinds of line that pass a plain gate, though nobody knows that nothing got worse."""

PASSING: Final = ("passed", "shown")
"""The decisions with which a run does not fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The findings of a gate over all checkpoints of a run; with ``mode`` None it decides nothing.

    ``asked``: of a gate that may stop early, how many items were asked, of how many. ``mistake``: what was asked for is
    not there, such as a floor of an unknown metric; ``fault``: the baselines could not be read. Either leaves nothing
    judged.
    """

    mode: str | None
    baseline: str
    margin: float
    alpha: float
    lines: tuple[BenchmarkComparison, ...] = ()
    pooled: tuple[BenchmarkComparison, ...] = ()
    notes: tuple[str, ...] = ()
    asked: tuple[int, int] | None = None
    mistake: str | None = None
    fault: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0, 8 (worse, or below a floor), 9 (invalid; outweighs 8) or 4 (a mistake); 0 without a mode."""
        if self.mistake is not None:
            return ExitCode.MISTAKE
        if self.mode is None:
            return ExitCode.OK
        if self.fault is not None or any(line.invalid for line in self.lines):
            return ExitCode.NOT_VALID
        return ExitCode.WORSE if any(line.fails for line in self.lines) else ExitCode.OK

    @property
    def decision(self) -> str:
        """Return the exit code in words."""
        words = {
            ExitCode.OK: "passed",
            ExitCode.WORSE: "failed",
            ExitCode.NOT_VALID: "not valid",
            ExitCode.MISTAKE: "mistake",
        }
        return "shown" if self.mode is None and self.mistake is None else words[self.exit_code]


def gate_json(gate: GateResult, text: str, code: int | None = None) -> dict[str, Any]:
    """Return a gate's result as JSON data.

    ``text`` is the decision in a sentence; ``code`` is the run's exit code if it is not the gate's.
    """
    exit_code = int(gate.exit_code) if code is None else code
    header = {"schema": SCHEMA, "decision": gate.decision, "exit_code": exit_code, "text": text}
    lines, pooled = (
        [plain_line(replace(line, sees=_seen_drop(line, gate.alpha))) for line in group]
        for group in (ordered(gate.lines), gate.pooled)
    )
    context = asdict(replace(gate, lines=(), pooled=()))
    plain: dict[str, Any] = replace_non_finite({**header, **context, "lines": lines, "pooled": pooled})
    return plain


def _seen_drop(line: BenchmarkComparison, alpha: float) -> float | None:
    """Return the smallest true drop that such a line calls worse with power 0.8; None where not known."""
    margin, design = line.comparison.margin, design_of_comparison(line.as_measured)
    if margin is None or design is None or line.identical or line.early:
        return None
    return smallest_drop(design, family=max(1, line.comparison.family), margin=margin, alpha=alpha)


def lines_from_json(plain: Mapping[str, Any], key: str = "lines") -> list[BenchmarkComparison]:
    """Return the lines from JSON data; those of ``pooled`` by that key."""
    return [line_of(row) for row in plain.get(key, ())]


def shown_lines(plain: Mapping[str, Any]) -> list[BenchmarkComparison]:
    """Return the lines of the plain form, the most urgent first, then pooled lines not among them."""
    lines = lines_from_json(plain)
    return [*ordered(tuple(lines)), *(line for line in lines_from_json(plain, "pooled") if line not in lines)]


def ordered(lines: tuple[BenchmarkComparison, ...]) -> list[BenchmarkComparison]:
    """Return the lines with the most urgent first, else in the given order."""
    return sorted(lines, key=lambda line: (not line.invalid, not line.fails, KINDS.index(line.kind)))
