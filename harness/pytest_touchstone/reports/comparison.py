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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.metric import (
    best_scorer,
    condition_text,
    conditions_apart,
    metric_of,
)
from pytest_touchstone.compare.pair import Mean, PairComparison, judged_apart
from pytest_touchstone.core.requests import MASK
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.document import Facts, Section, Table, render_text
from pytest_touchstone.document.formatting import (
    NOTHING,
    interval,
    number,
    p_exact,
)
from pytest_touchstone.statistics.comparison import POINTS, Comparison, Kind
from pytest_touchstone.statistics.verdicts import P_DECIDES, is_at_odds

LISTS: Final[tuple[tuple[Kind, str], ...]] = (
    ("better", "improvements"),
    ("worse", "regressions"),
    ("not worse", "not_worse"),
    ("inconclusive", "inconclusive"),
)
"""The lists of benchmarks by verdict, under their names in the plain data."""

IDENTICAL: Final = "identical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """An item with another score in the new run: the question, both answers, and the right one, as far as known."""

    example: str
    gained: bool
    question: str | None
    baseline: str | None
    new: str | None
    gold: str | None


Flips = Mapping[str, Sequence[Flip]]
"""Items to be shown, by benchmark."""


class Cells(NamedTuple):
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


HEADER: Final = Cells(
    "benchmark", "metric", "A", "B", "points (per cent)", "95 % interval", "p", "n", "flips", "verdict"
)


def header(level: float) -> Cells:
    """Return the titles of the columns, for intervals of this level."""
    return HEADER._replace(interval=f"{100 * level:g} % interval")


def cells(line: BenchmarkComparison) -> Cells:
    """Return the line's cells; ``p`` is the uncorrected one, while verdicts use Holm's."""
    one = line.comparison
    relative = "" if line.percent is None else f" ({percent(line.percent)})"
    return Cells(
        line.benchmark,
        line.label,
        number(one.baseline),
        number(one.new),
        one.told_in.told(one.difference).removesuffix(" points") + relative,
        interval(one.low, one.high, one.told_in.moved),
        p_exact(one.p),
        "/".join(
            str(n) if n else NOTHING for n in dict.fromkeys(line.counts[:2])
        ),  # of both, where they differ
        flips(line),
        one.verdict or "",
    )


def about_values(pair: PairComparison, line: BenchmarkComparison) -> str:
    """Return the marks of a primary metric's values, such as ``sample: 32 of 2,376``.

    If they differ: ``A 4 of 32 items; B sample: 32 of 2,376``.
    """
    if not line.primary:
        return ""
    sides = [side.entries.get(line.benchmark) for side in (pair.baseline, pair.new)]
    texts = [entry.saved.about if entry else "" for entry in sides]
    if texts[0] == texts[1]:
        return texts[0]
    return "; ".join(f"{name} {text}" for name, text in zip("AB", texts, strict=True) if text)


def composite_cells(line: BenchmarkComparison) -> Cells:
    """Return a composite's cells; it has no items."""
    return cells(line)._replace(metric="composite", n="", flips="")


def percent(value: float | None) -> str:
    """Return a change in per cent: ``+1.2 %``."""
    return NOTHING if value is None else f"{round(value, 1) or 0.0:+.1f} %"


def flips(line: BenchmarkComparison) -> str:
    """Return items gained and lost, ``+12 -7``; ``identical`` where no score differs."""
    if line.flips is None:
        return NOTHING
    return IDENTICAL if line.is_unchanged else f"+{len(line.flips.gained)} -{len(line.flips.lost)}"


def is_valid(pair: PairComparison, line: BenchmarkComparison) -> bool:
    """Return whether nothing is known against either value."""
    sides = (pair.baseline.entries.get(line.benchmark), pair.new.entries.get(line.benchmark))
    return not any(entry and entry.saved.invalid for entry in sides)


def about(one: CheckpointResults) -> str:
    """Return the origin of a candidate's results, and the known facts of the checkpoint."""
    parts = [one.origin]
    parts += [f"step {one.about['step']}"] if "step" in one.about else []
    parts += [f"epoch {one.about['epoch']:g}"] if "epoch" in one.about else []
    parts += [count(one.about["seq_len"], "token")] if "seq_len" in one.about else []
    return ", ".join(parts)


def lists(pair: PairComparison) -> list[tuple[str, str]]:
    """Return improvements, regressions and the rest, each with its benchmarks and why: ``arc_easy: +1.20 points
    [...]``."""
    found = []
    for kind, key in LISTS:
        names, title = pair.of_kind(kind), key.replace("_", " ")
        found += [(title, "none")] if not names else []
        found += [
            ("" if index else title, f"{name}: {pair.judged[name].comparison.why}")
            for index, name in enumerate(names)
        ]
    return found


def findings(pair: PairComparison) -> list[tuple[str, str]]:
    """Return labels and texts that stand below the table: the lists, composites, the mean, and all items as one."""
    found = lists(pair)
    found += [(line.benchmark, f"{line.comparison.why}; = {line.metric}") for line in pair.composites]
    wrong = [name for name, line in pair.judged.items() if not is_valid(pair, line)]
    without = f"; without {listed(wrong)}, NOT VALID" if wrong else ""
    found += [("mean", mean(pair.mean) + without)] if pair.mean is not None else []
    return found + ([(pair.pooled.metric, pooled(pair.pooled) + without)] if pair.pooled is not None else [])


def mean(found: Mean) -> str:
    """Return the mean improvement in one line."""
    one = found.comparison
    if one.low is not None:
        limits = f" {interval(one.low, one.high, POINTS.moved)}"
    else:
        limits = f" (no interval: {one.why})" if one.why else ""
    tested = f", p = {p_exact(one.p)}".replace("= <", "< ") if one.p is not None else ""
    over = f" over the {found.relative} with a baseline above 0" if found.relative < found.benchmarks else ""
    relative = f", {percent(found.percent)}{over}" if found.percent is not None else ""
    return f"{POINTS.told(one.difference)}{limits}{tested}{relative}, over {count(found.benchmarks, 'benchmark')}"


def pooled(line: BenchmarkComparison) -> str:
    """Return the verdict on all items together, in one line."""
    comparison, why = line.comparison, line.comparison.why
    if ", p = " not in why and comparison.p is not None:
        why = f"{why} (p = {p_exact(comparison.p)})".replace("= <", "< ")
    return f"{comparison.verdict}: {why}; {count(comparison.n, 'item')} of {line.benchmark}"


def notes(pair: PairComparison) -> list[str]:
    """Return the facts that a reader must know before believing the numbers."""
    a, b = pair.baseline, pair.new
    lines = [*pair.lines, *pair.composites, *([pair.pooled] if pair.pooled else [])]
    shown = [line.comparison for line in lines] + ([pair.mean.comparison] if pair.mean else [])
    return [
        *dict.fromkeys((*a.notes, *b.notes)),
        *(
            f"{name} of {side} is NOT VALID: {why}"
            for side, name, entry in _entries(pair)
            if (why := entry.saved.invalid)
        ),
        *_by_text(pair, _scorers(pair)),
        *_directions(pair),
        *([P_DECIDES] if any(is_at_odds(one.low, one.high, one.p, 1 - one.level) for one in shown) else []),
        *_without_margin(pair),
        *_by_text(pair, _conditions(pair)),
        *_judges(pair),
        *_unknown(pair),
        *_by_text(pair, _totals(pair)),
        *_items(pair),
        *(
            f"{name}: {count(n, 'item')} of {side} should have been scored and {'was' if n == 1 else 'were'} not"
            for side, name, entry in _entries(pair)
            if (n := entry.saved.faults)
        ),
        *(
            f"only {name} has {listed(left)}: not compared"
            for name, left in (("A", pair.only_in(a, b)), ("B", pair.only_in(b, a)))
            if left
        ),
    ]


def _entries(pair: PairComparison) -> list[tuple[str, str, BenchmarkScores]]:
    """Yield the results that were judged: side, benchmark and entry."""
    sides = (("A", pair.baseline), ("B", pair.new))
    return [(side, name, one.entries[name]) for side, one in sides for name in pair.judged]


def _directions(pair: PairComparison) -> list[str]:
    """Return the metrics of which lower is better."""
    lower = dict.fromkeys(line.metric for line in pair.lines if not line.comparison.higher_is_better)
    return [f"lower is better for {listed(lower)}"] if lower else []


def _without_margin(pair: PairComparison) -> list[str]:
    """Return the metrics that have no verdict, since their unit has no margin."""
    lacking = dict.fromkeys(
        f"no verdict by {line.label}: it is in {line.comparison.unit}, which has no margin; give one, --margin D"
        for line in pair.lines
        if line.primary and line.comparison.verdict is None and line.comparison.unit
    )
    return list(lacking)


def _scorers(pair: PairComparison) -> Iterator[tuple[str, str]]:
    """Yield the scorers of benchmarks for which only one side has the better scorer."""
    for name, line in pair.judged.items():
        a, b = pair.baseline.entries[name], pair.new.entries[name]
        for side, entry, other in (("A", a, b), ("B", b, a)):
            best = best_scorer(entry)
            if best != line.metric and metric_of(entry, best) and metric_of(other, best) is None:
                yield f"compared by {line.metric}, since only {side} has {best}", name


def _conditions(pair: PairComparison) -> Iterator[tuple[str, str]]:
    """Yield the conditions that differ."""
    for name in pair.judged:
        apart = conditions_apart(pair.baseline.entries[name], pair.new.entries[name])
        for condition, values in apart.items():
            yield f"not asked alike, {condition_text(condition, values)}", name


def _judges(pair: PairComparison) -> list[str]:
    """Return the benchmarks that different judges have judged."""
    both = {name: entry for name, entry in pair.baseline.entries.items() if name in pair.new.entries}
    return [
        f"not compared, {text}: {name}"
        for name, entry in both.items()
        if (text := judged_apart(entry, pair.new.entries[name]))
    ]


def _by_text(pair: PairComparison, notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return each text once, with the names of all its benchmarks."""
    names: dict[str, list[str]] = {}
    for text, name in notes:
        names.setdefault(text, []).append(name)
    return [f"{text}: {_benchmarks(pair, same)}" for text, same in names.items()]


def _benchmarks(pair: PairComparison, names: Sequence[str]) -> str:
    """Return the names, or a word that they are all."""
    every = 1 < len(names) == len(pair.judged)
    return f"all {len(names)} benchmarks" if every else listed(names)


def _unknown(pair: PairComparison) -> list[str]:
    """Return notes on a side that was published elsewhere, if the other is a run; items in pairs are known by their
    prompts."""
    published = {
        side: any(entry.saved.published for entry in one.entries.values())
        for side, one in (("A", pair.baseline), ("B", pair.new))
    }
    if all(published.values()) or not any(published.values()):
        return []
    who = "A was published elsewhere" if published["A"] else "B was published elsewhere"
    met = [name for name, line in pair.judged.items() if line.counts.paired]
    rest = [name for name in pair.judged if name not in met]
    found = [f"{who}, and asked the same items by the same prompts: {_benchmarks(pair, met)}"] if met else []
    if rest:
        which = f": {_benchmarks(pair, rest)}" if met else ""
        found.append(f"{who}: whether it was asked the same items alike is not known{which}")
    return found


def _totals(pair: PairComparison) -> Iterator[tuple[str, str]]:
    """Yield the benchmarks that were compared without any items."""
    for name, line in pair.judged.items():
        if not line.counts.paired and line.counts.each is None:
            how = f", by {line.comparison.method}" if line.comparison.method != "none" else ""
            yield f"only totals are known, compared as runs on different items{how}", name


def _items(pair: PairComparison) -> Iterator[str]:
    """Yield the benchmarks that were compared on part of the items."""
    for name, line in pair.judged.items():
        if line.counts.each is not None and len(set(line.counts.each)) > 1:
            a, b, both = line.counts.each
            how = "compared on these" if line.counts.paired else "compared as runs on different items"
            yield f"{name}: {both} of {a} items of A and {b} of B are the same: {how}"


def clipped(text: str, width: int, *, end: bool = False) -> str:
    """Return at most that many characters, in one line.

    They are from the start of the text or, with ``end``, from its end, or around a mask, if there is one.
    """
    plain = " ".join(str(text).split())
    if len(plain) <= width:
        return plain
    at = plain.find(MASK)
    if at >= 0 and len(plain) - at + width // 2 > width:
        plain = f"{plain[: at + width // 2]}…"
        end = True
        if len(plain) <= width:
            return plain
    return f"…{plain[-(width - 1) :]}" if end else f"{plain[: width - 1]}…"


# Plain data


def pair_facts(pair: PairComparison, flips: Flips | None = None) -> dict[str, Any]:
    """Return the whole comparison."""
    return {
        "baseline": _candidate(pair.baseline),
        "new": _candidate(pair.new),
        "benchmarks": [_line(pair, line, (flips or {}).get(line.benchmark)) for line in pair.lines],
        "composites": [_line(pair, line, None) for line in pair.composites],
        "mean": None
        if pair.mean is None
        else {
            **_numbers(pair.mean.comparison),
            "percent": pair.mean.percent,
            "benchmarks": pair.mean.benchmarks,
        },
        "pooled": None if pair.pooled is None else _line(pair, pair.pooled, None),
        **{key: pair.of_kind(kind) for kind, key in LISTS},
        "notes": notes(pair),
    }


def _candidate(one: CheckpointResults) -> dict[str, Any]:
    return {"name": one.name, "origin": one.origin, **one.about}


def _line(pair: PairComparison, line: BenchmarkComparison, flips: Sequence[Flip] | None) -> dict[str, Any]:
    one = line.comparison
    a, b = pair.baseline.entries.get(line.benchmark), pair.new.entries.get(line.benchmark)
    numbers = asdict(one)
    found: dict[str, Any] = {
        **{name: getattr(line, name) for name in ("benchmark", "metric", "label", "primary")},
        **_numbers(one),
        "percent": line.percent,
        **{name: numbers[name] for name in ("level", "stderr", "p_adjusted", "verdict", "margin", "method")},
        "why": one.why or None,
        "n": one.n or None,
        "paired": line.counts.paired,
        "gained": len(line.flips.gained) if line.flips else None,
        "lost": len(line.flips.lost) if line.flips else None,
        "identical": line.is_unchanged,
        "items_to_tell": one.items_to_tell or None,
        "baseline_about": a.saved.about if a else "",
        "new_about": b.saved.about if b else "",
        "conditions_differ": conditions_apart(a, b) if a and b else {},
    }
    if flips is not None and line.primary:
        found["flips"] = [asdict(flip) for flip in flips]
    return found


def _numbers(one: Comparison) -> dict[str, Any]:
    found = {name: getattr(one, name) for name in ("baseline", "new", "difference", "low", "high", "p")}
    in_points = one.told_in is POINTS and one.difference is not None
    return {
        **found,
        "points": POINTS.factor * (one.difference or 0.0) if in_points else None,
        "unit": one.told_in.name,
    }


NARROWEST: Final = 76
"""The columns that a table needs; in narrower terminals its lines wrap."""

STACKED: Final = ((0, 1), (2,), (3,), (4, 5), (6, 7), (9, 8))
"""The columns that stand below each other on a narrow terminal."""

MOST_SIGNS: Final = 300
"""The characters of a text of an item."""


def render(pairs: Sequence[PairComparison], flips: Sequence[Flips] = (), *, width: int, color: bool) -> str:
    """Return all comparisons as text of at most ``width`` columns (of at least 76), with ANSI colours if wanted."""
    return render_text(sections_of(pairs, flips), width=max(width, NARROWEST), color=color)


def sections_of(pairs: Sequence[PairComparison], flips: Sequence[Flips] = ()) -> list[Section]:
    """Return a section for each comparison, and one for the items of each benchmark that are to be shown."""
    sections = []
    for place, pair in enumerate(pairs):
        sections.append(pair_section(pair))
        for name, items in (flips[place] if place < len(flips) else {}).items():
            rows = tuple(row for flip in items for row in _flip_rows(flip))
            title = f"{name}: items gained and lost"
            sections.append(Section(title=title, parts=(Facts(rows),), folded=True))
    return sections


def pair_section(pair: PairComparison) -> Section:
    """Return the candidates, a line for each metric, the lists by verdict, and what must be known before them."""
    a, b = pair.baseline, pair.new
    sides = tuple((name, f"{side.name}  {about(side)}") for name, side in (("A", a), ("B", b)))
    below = (*findings(pair), *(("note", text) for text in notes(pair)))
    return Section(
        key=f"{a.name}-{b.name}",
        title=f"{b.name} against {a.name}",
        parts=(Facts(sides), _table(pair), Facts(below)),
    )


def _table(pair: PairComparison) -> Table:
    rows = []
    before = ""
    for line in (*pair.lines, *pair.composites):
        shown = cells(line) if line in pair.lines else composite_cells(line)
        sign = " " if not line.primary else "*" if is_valid(pair, line) else "!"
        mark = about_values(pair, line)
        mark = f"\n({mark})" if mark else ""
        rows.append(
            shown._replace(
                benchmark="" if shown.benchmark == before else _breakable(shown.benchmark),
                metric=f"{sign} {shown.metric}{mark}",
            )
        )
        before = shown.benchmark
    return Table(
        header=header(pair.lines[0].comparison.level), rows=tuple(rows), left=2, words=True, stacked=STACKED
    )


def _breakable(name: str) -> str:
    """Return the name of a group with spaces, where a narrow column may break it."""
    whole, slash, group = name.partition("/")
    return f"{whole}{slash} {group.replace('_', ' ')}" if group else name


def _flip_rows(flip: Flip) -> Iterator[tuple[str, str]]:
    yield "gained" if flip.gained else "lost", flip.example
    texts = {"question": flip.question, "A": flip.baseline, "B": flip.new, "gold": flip.gold}
    for label, text in texts.items():
        if text is None and (label != "gold" or flip.question is None):  # nobody stored the answers
            continue
        yield f"  {label}", clipped(text or NOTHING, MOST_SIGNS, end=label == "question")
