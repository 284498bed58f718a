"""The findings of a gate as plain data: the section ``gate`` of ``summary.json``, which reports show.

    {"schema": 1, "mode": "plain", "baseline": "best", "margin": 0.01, "alpha": 0.05, "exit_code": 8,
     "decision": "failed", "text": "...", "notes": [...], "lines": [{...}, ...], "pooled": [{...}]}

A line is one benchmark (or composite) of one checkpoint; ``pooled`` has one of all items together for each checkpoint,
which is among ``lines`` too where it may fail the gate. Numbers are shares, not points; what is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.files import SCHEMA, typed
from pytest_touchstone.results.summary import finite
from pytest_touchstone.statistics.power import Design, smallest_drop
from pytest_touchstone.statistics.units import POINTS, MetricUnit, unit_of
from pytest_touchstone.statistics.verdicts import ALPHA

KINDS: Final = (
    *("not valid", "not judged", "worse", "failed", "accepted", "inconclusive", "not compared", "first"),
    *("no baseline", "not worse", "better"),
)
"""The kinds of line, the most pressing first. "failed": by a floor or max_drop, whatever the verdict; "accepted": it
would fail, but for a drop that somebody has accepted."""

UNSURE: Final = ("inconclusive", "not compared")
"""The kinds of line that pass a plain gate, though nobody knows that nothing got worse."""

WITHOUT: Final = {"first": "first", "apart": "not compared"}
"""The kind of a line without a comparison, by the state of its baseline."""

PASSING: Final = ("passed", "shown")
"""The decisions with which a run does not fail."""

STRICT: Final = "inconclusive, and the gate is strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRef:
    """The baseline of a line: its identity, its value, and its value after allowing for its being the best of
    ``runs``."""

    checkpoint: str
    run_id: str
    step: int | None
    measured: float | None
    shrunk: float | None
    runs: int
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """One benchmark of one checkpoint.

    ``verdict`` is the statistical one, None without a comparison; ``fails`` and ``invalid`` are the reasons for exit
    code 8 and 9; ``why`` says what the verdict rests on. ``difference``, its limits and ``p`` allow for the baseline's
    being the best of several; ``as_measured`` is the difference of the two measured values. ``items`` is about how
    many would settle it. ``unit`` is that of differences and of the margin, "points" for hundredths. ``part``: how many
    of an earlier result's items it has, where it lacks some, such as "2 of 400 items". ``early``: settled by an interim
    analysis, whose p is not corrected. ``about``: what must be known beside the value, its mark. ``accepted``: what
    would make it fail, and who has accepted that. ``sees`` is ``reach`` as a file has it; in memory it follows from
    ``design``, margin, ``alpha`` and family. ``stands_in`` names the metric with what stands for it in values and
    differences, where anything does.
    """

    checkpoint: str
    benchmark: str
    metric: str
    verdict: str | None
    why: str
    fails: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    value: float | None = None
    against: BaselineRef | None = None
    difference: float | None = None
    as_measured: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    n: int = 0
    margin: float | None = None
    unit: str = POINTS.name
    alpha: float | None = field(default=None, compare=False)
    items: int | None = None
    method: str = ""
    state: str = "chosen"
    about: str = ""
    part: str = ""
    early: bool = False
    accepted: str = ""
    sees: float | None = field(default=None, compare=False)
    design: Design | None = field(default=None, compare=False)
    stands_in: str = ""

    @property
    def label(self) -> str:
        """The name of what the value is of."""
        return self.stands_in or self.metric

    @property
    def told_in(self) -> MetricUnit:
        """The unit of differences and of the margin."""
        return unit_of(self.unit, share=self.unit == POINTS.name)

    @property
    def reach(self) -> float | None:
        """The smallest true drop that such a line calls worse with power 0.8; None where not known."""
        if self.sees is not None or self.design is None or self.margin is None:
            return self.sees
        alpha = self.alpha if self.alpha is not None else ALPHA
        return smallest_drop(self.design, family=max(1, self.family), margin=self.margin, alpha=alpha)

    @property
    def kind(self) -> str:
        """The finding in a word or two, one of ``KINDS``."""
        if self.invalid:
            return "not judged" if self.verdict is None else "not valid"
        if self.accepted and not self.fails:
            return "accepted"
        if self.verdict == "worse":
            return "worse"
        if any(reason != STRICT for reason in self.fails):
            return "failed"
        return self.verdict or WITHOUT.get(self.state, "no baseline")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The findings of a gate over all checkpoints of a run. With ``mode`` None it was not asked to decide.

    ``asked``: of a gate that may stop early, how many items were asked, of how many. ``mistake``: what was asked for is
    not there, such as a floor of an unknown metric; ``fault``: the baselines could not be read. Either leaves nothing
    judged.
    """

    mode: str | None
    baseline: str
    margin: float
    alpha: float
    lines: tuple[GateLine, ...] = ()
    pooled: tuple[GateLine, ...] = ()
    notes: tuple[str, ...] = ()
    asked: tuple[int, int] | None = None
    mistake: str | None = None
    fault: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0, 8 (worse, or below what was asked) or 9 (nothing can be said, which outweighs 8); 0 without a mode; 4
        for a mistake."""
        if self.mistake is not None:
            return ExitCode.MISTAKE
        if self.mode is None:
            return ExitCode.OK
        if self.fault is not None or any(line.invalid for line in self.lines):
            return ExitCode.NOT_VALID
        return ExitCode.WORSE if any(line.fails for line in self.lines) else ExitCode.OK

    @property
    def decision(self) -> str:
        """The exit code in words."""
        words = {
            ExitCode.OK: "passed",
            ExitCode.WORSE: "failed",
            ExitCode.NOT_VALID: "not valid",
            ExitCode.MISTAKE: "mistake",
        }
        return "shown" if self.mode is None and self.mistake is None else words[self.exit_code]


def gate_json(gate: GateResult, text: str, code: int | None = None) -> dict[str, Any]:
    """The plain form; ``text`` is the decision in a sentence, ``code`` the run's exit code, where it is not the
    gate's."""
    lines = [{"kind": line.kind, **_line_json(line)} for line in ordered(gate.lines)]
    exit_code = int(gate.exit_code) if code is None else code
    known = {"schema": SCHEMA, "decision": gate.decision, "exit_code": exit_code, "text": text}
    pooled = [{"kind": line.kind, **_line_json(line)} for line in gate.pooled]
    plain: dict[str, Any] = finite({**known, **asdict(gate), "lines": lines, "pooled": pooled})
    return plain


def _line_json(line: GateLine) -> dict[str, Any]:
    """The line as plain data."""
    plain = asdict(line) | {"sees": line.reach}
    del plain["design"], plain["alpha"]
    return plain


def lines_from_json(plain: Mapping[str, Any], key: str = "lines") -> list[GateLine]:
    """The lines of the plain form, as they were; those of ``pooled`` by that key."""
    return [typed(GateLine, row) for row in plain.get(key, ())]


def shown_lines(plain: Mapping[str, Any]) -> list[GateLine]:
    """The lines of the plain form, the most pressing first, then those about all items that are not among them."""
    lines = lines_from_json(plain)
    return [*ordered(tuple(lines)), *(one for one in lines_from_json(plain, "pooled") if one not in lines)]


def ordered(lines: tuple[GateLine, ...]) -> list[GateLine]:
    """The most pressing first, else as they came."""
    return sorted(lines, key=lambda line: (not line.invalid, not line.fails, KINDS.index(line.kind)))
