"""A comparison in GitHub-flavoured Markdown: a table a pair, the lists and notes below it, flips folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.compare.pair import Pair
from harness.reports import comparison
from harness.reports.comparison import Cells, Flip, Flips
from harness.reports.formatting import NOTHING

_RIGHT = ("baseline", "new", "points", "interval", "percent", "p", "n", "flips")


def render_markdown(pairs: Sequence[Pair], flips: Sequence[Flips] = ()) -> str:
    """All comparisons; texts of others cannot break out of their cells."""
    shown = [
        "\n".join(_pair(pair, flips[place] if place < len(flips) else {})) for place, pair in enumerate(pairs)
    ]
    return "\n\n".join(shown) + "\n"


def escaped(text: str) -> str:
    """The text as Markdown shows it: no markup, no line breaks, no end of a cell."""
    plain = comparison.one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # @ and # would call people and issues on GitHub.
    plain = re.sub(r"([\\`*_{}\[\]|~$!])", r"\\\1", plain)
    return re.sub(r"(?<!\w)([@#])(?=\w)", "\\1\N{ZERO WIDTH NON-JOINER}", plain)


def _pair(pair: Pair, flips: Flips) -> Iterable[str]:
    a, b = pair.baseline, pair.new
    yield f"### {escaped(b.name)} against {escaped(a.name)}"
    yield ""
    yield f"- A, the baseline: {escaped(a.name)} ({escaped(comparison.about(a))})"
    yield f"- B: {escaped(b.name)} ({escaped(comparison.about(b))})"
    yield ""
    level = pair.lines[0].comparison.level
    yield _row(comparison.header(level))
    yield "| " + " | ".join("---:" if name in _RIGHT else "---" for name in Cells._fields) + " |"
    for line in pair.lines:
        one = comparison.cells(line)
        if about := comparison.about_values(pair, line):
            one = one._replace(benchmark=f"{one.benchmark} ({about})")
        yield _row(one, bold=line.primary and one.verdict.startswith(("worse", "better")))
    for line in pair.composites:
        yield _row(comparison.composite_cells(line))
    yield ""
    for title, text in comparison.lists(pair):
        yield f"- **{title}**: {escaped(text)}" if title else f"  - {escaped(text)}"
    if pair.mean is not None:
        yield f"- **mean**: {escaped(comparison.mean(pair.mean))}"
    yield from (f"- note: {escaped(text)}" for text in comparison.notes(pair))
    for name, found in flips.items():
        yield from _flips(name, found)


def _row(one: Cells, *, bold: bool = False) -> str:
    shown = [escaped(cell) for cell in one]
    if bold:
        shown[-1] = f"**{shown[-1]}**"
    return "| " + " | ".join(shown) + " |"


def _flips(name: str, found: Sequence[Flip]) -> Iterable[str]:
    yield ""
    yield f"<details><summary>{escaped(name)}: items gained and lost</summary>"
    yield ""
    yield "| item | | question | A | B | gold |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for flip in found:
        texts = (flip.question, flip.baseline, flip.new, flip.gold)
        shown = [
            escaped(comparison.clipped(text or NOTHING, 300, end=place == 0))
            for place, text in enumerate(texts)
        ]
        word = "gained" if flip.gained else "lost"
        yield f"| {escaped(flip.example)} | {word} | {' | '.join(shown)} |"
    yield ""
    yield "</details>"
