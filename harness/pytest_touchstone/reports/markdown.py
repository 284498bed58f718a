"""A run, and a comparison, as GitHub-flavoured Markdown for a comment on a pull request or the summary of a job.

A run begins with the gate's decision; where that is red, with what dropped, how to look at it, and how to accept it. A
comparison has one table per pair, its lists and notes below, and flips
folded.

Names of checkpoints, benchmarks and items come from outside: they stand in code spans, where nothing links, mentions or
formats, and whatever else is printed is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.gate.result import shown_lines
from pytest_touchstone.compare.pair import PairComparison
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.document import Facts, Section, formatting, render_markdown
from pytest_touchstone.document.formatting import markdown_code, markdown_text
from pytest_touchstone.reports import comparison, notes
from pytest_touchstone.reports.changes import changes_section
from pytest_touchstone.reports.comparison import Flips
from pytest_touchstone.reports.gate import difference_text, gate_section, standing
from pytest_touchstone.reports.tables import legend, results_section
from pytest_touchstone.reports.terminal import after_gate
from pytest_touchstone.results.summary import Summary, wholes

ROWS: Final = 100
"""The most lines of a table; a comment on GitHub holds 65,536 characters."""

MOST_DROPS: Final = 5
"""The most drops that stand above the table."""

MOST_SIGNS: Final = 2000

SIGNS: Final = {
    "passed": ":white_check_mark:",
    "first": ":information_source:",
    "unsure": ":warning:",
    "failed": ":x:",
    "not valid": ":warning:",
    "mistake": ":warning:",
    "shown": ":bar_chart:",
}


def page(summary: Summary) -> str:
    """Return the whole text."""
    many = len(wholes(summary)) > ROWS
    signs = legend(summary, many=many)
    facts = Facts((*([("legend", signs)] if signs else []), *notes.facts(summary, details=True)))
    sections = [results_section(summary, many=many), changes_section(summary), Section(parts=(facts,))]
    parts = [
        f"### Benchmarks: {markdown_code(summary.run_id)}",
        *map(markdown_text, notes.demonstration(summary)),
        *_gate(summary),
        *render_markdown(filter(None, sections), most_rows=ROWS),
    ]
    return "\n\n".join(parts) + "\n"


def failed_page(code: int, message: str) -> str:
    """Return the text for a run that has no results: its exit code, what that means, and what was said."""
    meaning = next((f": {one.sentence}" for one in ExitCode if one == code), "")
    head = f"### Benchmarks: no results\n\n:x: **exit code {code}{markdown_text(meaning)}**"
    return f"{head}\n\n{markdown_text(message[:MOST_SIGNS])}\n"


def _gate(summary: Summary) -> list[str]:
    gate = summary.gate
    if gate is None:
        return []
    parts = [f"{SIGNS.get(standing(gate), '')} **{markdown_text(str(gate['text']))}**".strip()]
    lines = shown_lines(gate)
    if red := [line for line in lines if line.fails]:
        told = [_dropped(line) for line in red[:MOST_DROPS]]
        told += [f"- and {len(red) - MOST_DROPS} more, in the table"] if len(red) > MOST_DROPS else []
        told += [
            f"- {markdown_text(step.what)}: {markdown_code(step.command)}" for step in after_gate(summary)
        ]
        parts.append("\n".join(told))
    return [*parts, *render_markdown([replace(gate_section(gate), title="")], most_rows=ROWS)]


def _dropped(line: BenchmarkComparison) -> str:
    """Return what dropped, by how much, against what, and how sure that is."""
    metric = "" if line.metric == COMPOSITE else f" {markdown_code(line.label)}"
    against = line.against
    before = "" if against is None else f"{formatting.number(line.as_measured.baseline)} to "
    parts = [
        f"{markdown_code(line.benchmark)}{metric} of {markdown_code(line.checkpoint)}: "
        f"{before}{formatting.number(line.comparison.new)}"
    ]
    if line.comparison.difference is not None:
        adjusted = line.comparison.p_adjusted
        p = "" if adjusted is None else f", p {markdown_text(formatting.p_short(adjusted))}"
        parts.append(f"**{difference_text(line)}**{p} over {line.comparison.n:,} items")
    if against is not None:
        parts.append(f"against {markdown_code(against.checkpoint)} of run {markdown_code(against.run_id)}")
    parts += [markdown_text(reason) for reason in line.fails if reason != "worse"]
    return f"- {', '.join(parts)}"


def comparison_page(pairs: Sequence[PairComparison], flips: Sequence[Flips] = ()) -> str:
    """Return all comparisons; no text of others can break out of its cell."""
    return "\n\n".join(render_markdown(comparison.sections_of(pairs, flips))) + "\n"
