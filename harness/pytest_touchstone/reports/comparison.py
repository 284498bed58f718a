"""A comparison in words (cells of tables, lists of verdicts, notes) and as plain data.

``touchstone compare --format json`` prints the plain data:

    {"pairs": [{"baseline": {...}, "new": {...}, "benchmarks": [LINE], "composites": [LINE], "mean": {...},
                "pooled": LINE, "improvements": [NAME], "regressions": [], "not_worse": [], "inconclusive": [],
                "notes": [TEXT]}]}

A line has both values, ``difference`` (of the scores), ``points`` (hundredths), ``percent``, and ``low`` and ``high``
of the difference. It also has ``p``, ``p_adjusted`` (Holm), ``n``, ``verdict`` (null for other metrics than the
primary one) and ``why``. Undefined numbers are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.metric import (
    best_scorer,
    condition_text,
    conditions_that_differ,
    metric_of,
)
from pytest_touchstone.compare.pair import MeanComparison, PairComparison, differing_judges
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import Facts, Section, Table, render_text
from pytest_touchstone.document.formatting import (
    NOTHING,
    clip,
    interval,
    number,
    p_exact,
)
from pytest_touchstone.reports.harnesses import difference_facts, harness_sections
from pytest_touchstone.statistics.comparison import POINTS, Comparison, VerdictKind
from pytest_touchstone.statistics.verdicts import P_DECIDES, is_at_odds

LISTS: Final[tuple[tuple[VerdictKind, str], ...]] = (
    ("better", "improvements"),
    ("worse", "regressions"),
    ("not worse", "not_worse"),
    ("inconclusive", "inconclusive"),
)
"""The lists of benchmarks by verdict, under their names in the plain data."""

IDENTICAL: Final = "identical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """An item with a different score in the new run, with both answers and the gold answer."""

    example: str
    gained: bool
    question: str | None
    baseline: str | None
    new: str | None
    gold: str | None


FlipsByBenchmark = Mapping[str, Sequence[Flip]]
"""Items to be shown, by benchmark."""


class ComparisonCells(NamedTuple):
    """A line of a comparison in words."""

    benchmark: str
    metric: str
    baseline: str
    new: str
    points: str
    interval: str
    p: str
    n: str
    flips: str
    verdict: str


HEADER: Final = ComparisonCells(
    "benchmark", "metric", "A", "B", "points (per cent)", "95 % interval", "p", "n", "flips", "verdict"
)


def line_cells(line: BenchmarkComparison, *, is_composite: bool = False) -> ComparisonCells:
    """Return the line's cells; ``p`` is the uncorrected one, while verdicts use Holm's. Composites have no items."""
    comparison = line.comparison
    relative = "" if line.percent is None else f" ({percent(line.percent)})"
    sizes = dict.fromkeys(line.counts[:2])  # of both, where they differ
    items, flips = "/".join(str(n) if n else NOTHING for n in sizes), NOTHING
    if line.flips is not None:
        gained, lost = map(len, line.flips)
        flips = IDENTICAL if line.is_unchanged else f"+{gained} -{lost}"
    return ComparisonCells(
        line.benchmark,
        COMPOSITE if is_composite else line.label,
        number(comparison.baseline),
        number(comparison.new),
        comparison.told_in.told(comparison.difference).removesuffix(" points") + relative,
        interval(comparison.low, comparison.high, comparison.told_in.moved),
        p_exact(comparison.p),
        "" if is_composite else items,
        "" if is_composite else flips,
        comparison.verdict or "",
    )


def percent(value: float | None) -> str:
    """Return a change in per cent: ``+1.2 %``."""
    return NOTHING if value is None else f"{round(value, 1) or 0.0:+.1f} %"


def findings(pair: PairComparison) -> list[tuple[str, str]]:
    """Return the labelled texts below the table: benchmarks by verdict, composites, and all items together."""
    rows = []
    for kind, key in LISTS:
        texts = [f"{name}: {pair.judged[name].comparison.why}" for name in pair.of_kind(kind)]
        rows += [(key.replace("_", " "), text) for text in texts or ["none"]]
    rows += [(line.benchmark, f"{line.comparison.why}; = {line.metric}") for line in pair.composites]
    wrong = [name for name, line in pair.judged.items() if line.invalid]
    without = f"; without {join_names(wrong)}, NOT VALID" if wrong else ""
    rows += [("mean", mean_text(pair.mean) + without)] if pair.mean is not None else []
    return rows + (
        [(pair.pooled.metric, pooled_text(pair.pooled) + without)] if pair.pooled is not None else []
    )


def mean_text(improvement: MeanComparison) -> str:
    """Return the mean improvement in one line."""
    comparison = improvement.comparison
    text = POINTS.told(comparison.difference)
    if comparison.low is not None:
        text += f" {interval(comparison.low, comparison.high, POINTS.moved)}"
    elif comparison.why:
        text += f" (no interval: {comparison.why})"
    if comparison.p is not None:
        text += f", p = {p_exact(comparison.p)}".replace("= <", "< ")
    if improvement.percent is not None:
        text += f", {percent(improvement.percent)}"
        if improvement.relative < improvement.benchmarks:
            text += f" over the {improvement.relative} with a baseline above 0"
    return f"{text}, over {count(improvement.benchmarks, 'benchmark')}"


def pooled_text(line: BenchmarkComparison) -> str:
    """Return the verdict on all items together, in one line."""
    comparison, why = line.comparison, line.comparison.why
    if ", p = " not in why and comparison.p is not None:
        why = f"{why} (p = {p_exact(comparison.p)})".replace("= <", "< ")
    return f"{comparison.verdict}: {why}; {count(comparison.n, 'item')} of {line.benchmark}"


def notes(pair: PairComparison) -> list[str]:
    """Return the facts that a reader should know before the numbers."""
    a, b = pair.baseline, pair.new
    entries = [
        (side, name, results.entries[name]) for side, results in (("A", a), ("B", b)) for name in pair.judged
    ]
    lines = [*pair.lines, *pair.composites, *([pair.pooled] if pair.pooled else [])]
    shown = [line.comparison for line in lines] + ([pair.mean.comparison] if pair.mean else [])
    texts = [*dict.fromkeys((*a.notes, *b.notes))]
    texts += [
        f"{name} of {side} is NOT VALID: {why}"
        for side, name, entry in entries
        if (why := entry.saved.invalid)
    ]
    if lower := dict.fromkeys(line.metric for line in pair.lines if not line.comparison.higher_is_better):
        texts.append(f"lower is better for {join_names(lower)}")
    if any(
        is_at_odds(comparison.low, comparison.high, comparison.p, 1 - comparison.level)
        for comparison in shown
    ):
        texts.append(P_DECIDES)
    texts += dict.fromkeys(
        f"no verdict by {line.label}: it is in {line.comparison.unit}, which has no margin; give one, --margin D"
        for line in pair.lines
        if line.primary and line.comparison.verdict is None and line.comparison.unit
    )
    names: dict[str, list[str]] = {}
    for name, line in pair.judged.items():
        for text in _differing_conditions(line, a.entries[name], b.entries[name]):
            names.setdefault(text, []).append(name)
    texts += [f"{text}: {_benchmarks(pair, same)}" for text, same in names.items()]
    texts += [
        f"not compared, {text}: {name}"
        for name in a.entries
        if name in b.entries and (text := differing_judges(a.entries[name], b.entries[name]))
    ]
    texts += _published_notes(pair)
    for name, line in pair.judged.items():
        if line.counts.each is not None and len(set(line.counts.each)) > 1:
            of_a, of_b, both = line.counts.each
            how = "compared on these" if line.counts.paired else "compared as runs on different items"
            texts.append(f"{name}: {both} of {of_a} items of A and {of_b} of B are the same: {how}")
    for side, name, entry in entries:
        if n := entry.saved.faults:
            was = "was" if n == 1 else "were"
            texts.append(f"{name}: {count(n, 'item')} of {side} should have been scored and {was} not")
    for side, only in (("A", pair.only_in(a, b)), ("B", pair.only_in(b, a))):
        texts += [f"only {side} has {join_names(only)}: not compared"] if only else []
    return texts


def _differing_conditions(line: BenchmarkComparison, a: BenchmarkScores, b: BenchmarkScores) -> Iterator[str]:
    """Yield the differences between two results: the scorer, conditions, and recorded items."""
    for side, entry, other in (("A", a, b), ("B", b, a)):
        best = best_scorer(entry)
        if best != line.metric and metric_of(entry, best) and metric_of(other, best) is None:
            yield f"compared by {line.metric}, since only {side} has {best}"
    for condition, values in conditions_that_differ(a, b).items():
        yield f"not asked alike, {condition_text(condition, values)}"
    if not line.counts.paired and line.counts.each is None:
        how = f", by {line.comparison.method}" if line.comparison.method != "none" else ""
        yield f"only totals are known, compared as runs on different items{how}"


def _benchmarks(pair: PairComparison, names: Sequence[str]) -> str:
    """Return the names, or a word that they are all."""
    every = 1 < len(names) == len(pair.judged)
    return f"all {len(names)} benchmarks" if every else join_names(names)


def _published_notes(pair: PairComparison) -> list[str]:
    """Return notes on a published result that is compared with a run. Paired items have known prompts."""
    published = [
        side
        for side, results in (("A", pair.baseline), ("B", pair.new))
        if any(entry.saved.published for entry in results.entries.values())
    ]
    if len(published) != 1:
        return []
    who = f"{published[0]} was published elsewhere"
    paired = [name for name, line in pair.judged.items() if line.counts.paired]
    others = [name for name in pair.judged if name not in paired]
    texts = []
    if paired:
        texts.append(f"{who}, and asked the same items by the same prompts: {_benchmarks(pair, paired)}")
    if others:
        which = f": {_benchmarks(pair, others)}" if paired else ""
        texts.append(f"{who}: whether it was asked the same items alike is not known{which}")
    return texts


# Plain data


def pair_facts(pair: PairComparison, flips: FlipsByBenchmark | None = None) -> dict[str, Any]:
    """Return the whole comparison."""
    improvement = pair.mean
    return {
        "baseline": {"name": pair.baseline.name, "origin": pair.baseline.origin, **pair.baseline.about},
        "new": {"name": pair.new.name, "origin": pair.new.origin, **pair.new.about},
        "benchmarks": [_line_facts(pair, line, (flips or {}).get(line.benchmark)) for line in pair.lines],
        "composites": [_line_facts(pair, line) for line in pair.composites],
        "mean": improvement
        and {
            **_numbers(improvement.comparison),
            "percent": improvement.percent,
            "benchmarks": improvement.benchmarks,
        },
        "pooled": pair.pooled and _line_facts(pair, pair.pooled),
        **{key: pair.of_kind(kind) for kind, key in LISTS},
        "harnesses": {found.benchmark: difference_facts(found) for found in pair.harnesses},
        "notes": notes(pair),
    }


def _line_facts(
    pair: PairComparison, line: BenchmarkComparison, flips: Sequence[Flip] | None = None
) -> dict[str, Any]:
    comparison = line.comparison
    a, b = pair.baseline.entries.get(line.benchmark), pair.new.entries.get(line.benchmark)
    numbers = asdict(comparison)
    row: dict[str, Any] = {
        **{name: getattr(line, name) for name in ("benchmark", "metric", "label", "primary")},
        **_numbers(comparison),
        "percent": line.percent,
        **{name: numbers[name] for name in ("level", "stderr", "p_adjusted", "verdict", "margin", "method")},
        "why": comparison.why or None,
        "n": comparison.n or None,
        "paired": line.counts.paired,
        "gained": len(line.flips.gained) if line.flips else None,
        "lost": len(line.flips.lost) if line.flips else None,
        "identical": line.is_unchanged,
        "items_to_tell": comparison.items_to_tell or None,
        "baseline_about": a.saved.about if a else "",
        "new_about": b.saved.about if b else "",
        "conditions_differ": conditions_that_differ(a, b) if a and b else {},
    }
    if flips is not None and line.primary:
        row["flips"] = [asdict(flip) for flip in flips]
    return row


def _numbers(comparison: Comparison) -> dict[str, Any]:
    names = ("baseline", "new", "difference", "low", "high", "p")
    in_points = comparison.told_in is POINTS and comparison.difference is not None
    return {
        **{name: getattr(comparison, name) for name in names},
        "points": POINTS.factor * (comparison.difference or 0.0) if in_points else None,
        "unit": comparison.told_in.name,
    }


NARROWEST: Final = 76
"""The columns that a table needs; in narrower terminals its lines wrap."""

STACKED: Final = ((0, 1), (2,), (3,), (4, 5), (6, 7), (9, 8))
"""The columns that stand below each other on a narrow terminal."""

MOST_SIGNS: Final = 300
"""The characters of a text of an item."""


def render(
    pairs: Sequence[PairComparison], flips: Sequence[FlipsByBenchmark] = (), *, width: int, color: bool
) -> str:
    """Return all comparisons as text of at most ``width`` columns, but no fewer than 76."""
    return render_text(sections_of(pairs, flips), width=max(width, NARROWEST), color=color)


def sections_of(pairs: Sequence[PairComparison], flips: Sequence[FlipsByBenchmark] = ()) -> list[Section]:
    """Return a section for each comparison, and those that explain it.

    These say why results differ across harnesses, and list the gained and lost items by benchmark.
    """
    sections: list[Section] = []
    for index, pair in enumerate(pairs):
        sections.append(pair_section(pair))
        sections += [section for found in pair.harnesses for section in harness_sections(found)]
        for name, items in (flips[index] if index < len(flips) else {}).items():
            rows = tuple(row for flip in items for row in _flip_rows(flip))
            title = f"{name}: items gained and lost"
            sections.append(Section(title=title, parts=(Facts(rows),), folded=True))
    return sections


def pair_section(pair: PairComparison) -> Section:
    """Return the candidates, warnings, a line for each metric, and the lists by verdict."""
    a, b = pair.baseline, pair.new
    sides = []
    for name, side in (("A", a), ("B", b)):
        about = [side.origin]
        about += [f"step {side.about['step']}"] if "step" in side.about else []
        about += [f"epoch {side.about['epoch']:g}"] if "epoch" in side.about else []
        about += [count(side.about["seq_len"], "token")] if side.about.get("seq_len") else []
        sides.append((name, f"{side.name}  {', '.join(about)}"))
    signs = {_sign(line) for line in (*pair.lines, *pair.composites)}
    legend = "; ".join(f"{sign} {LEGEND[sign]}" for sign in LEGEND if sign in signs)
    below = (("legend", legend), *findings(pair), *(("note", text) for text in notes(pair)))
    return Section(
        key=f"{a.name}-{b.name}",
        title=f"{b.name} against {a.name}",
        parts=(Facts(tuple(sides)), _table(pair), Facts(below)),
    )


LEGEND: Final = {"*": "the verdict is by this metric", "!": "not valid: no verdict"}
"""The meanings of the signs before a metric."""


def _sign(line: BenchmarkComparison) -> str:
    return " " if not line.primary else "!" if line.invalid else "*"


def _table(pair: PairComparison) -> Table:
    rows = []
    before = ""
    for line in (*pair.lines, *pair.composites):
        row = line_cells(line, is_composite=line in pair.composites)
        sides = [side.entries.get(line.benchmark) for side in (pair.baseline, pair.new)]
        marks = [entry.saved.about if entry else "" for entry in sides]
        if len(set(marks)) > 1:  # as ``A 4 of 32 items; B sample: 32 of 2,376``
            marks = ["; ".join(f"{name} {mark}" for name, mark in zip("AB", marks, strict=True) if mark)]
        mark = f"\n({marks[0]})" if marks[0] and line.primary else ""
        whole, slash, group = line.benchmark.partition("/")
        name = (
            f"{whole}{slash} {group.replace('_', ' ')}" if group else whole
        )  # which a narrow column may break
        row = row._replace(
            benchmark="" if line.benchmark == before else name,
            metric=f"{_sign(line)} {row.metric}{mark}",
        )
        if (level := line.comparison.level) != pair.lines[0].comparison.level:
            row = row._replace(interval=f"{row.interval} ({100 * level:.3g} %)")
        rows.append(row)
        before = line.benchmark
    header = HEADER._replace(interval=f"{100 * pair.lines[0].comparison.level:g} % interval")
    return Table(header=header, rows=tuple(rows), text_columns=2, words=True, stacked=STACKED)


def _flip_rows(flip: Flip) -> Iterator[tuple[str, str]]:
    yield "gained" if flip.gained else "lost", flip.example
    texts = {"question": flip.question, "A": flip.baseline, "B": flip.new, "gold": flip.gold}
    for label, text in texts.items():
        if text is None and (label != "gold" or flip.question is None):  # nobody stored the answers
            continue
        yield f"  {label}", clip(text or NOTHING, MOST_SIGNS, end=label == "question")
