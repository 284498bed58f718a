"""The gate's part of the reports: on the terminal, and on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Final

from harness.gate.report import Line, lines_from_json, ordered
from harness.gate.wording import (
    baseline_text,
    difference_text,
    p_text,
    points_text,
    reason_texts,
    value_text,
)

STYLES: Final = {
    "worse": "bold red",
    "failed": "bold red",
    "not valid": "bold red",
    "not judged": "bold red",
    "cannot tell": "yellow",
    "not compared": "bold yellow",
    "better": "bold green",
    "not worse": "green",
}
DECISIONS: Final = {
    "passed": "bold green",
    "failed": "bold red",
    "not valid": "bold red",
    "mistake": "bold red",
}


def print_gate(gate: Mapping[str, Any] | None, write: Callable[..., None]) -> None:
    """Prints a line a benchmark, the most pressing first, each with its reasons below; last the decision."""
    from rich.table import Table
    from rich.text import Text

    if gate is None:
        return
    lines = ordered(tuple(lines_from_json(gate)))
    write(Text.assemble(("\ngate", "bold cyan"), f"  {heading(gate)}"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    several = len({line.checkpoint for line in lines}) > 1
    for line in lines:
        table.add_row(Text(line.kind, style=STYLES.get(line.kind, "")), Text(_numbers(line, several)))
        against = baseline_text(line)
        for text in (*([f"baseline {against}"] if against else []), *reason_texts(line)):
            table.add_row("", Text(text, style="dim" if text not in (*line.fails, *line.invalid) else ""))
    for note in gate.get("notes", ()):
        table.add_row(Text("note", style="yellow"), Text(note))
    write(table)
    style = DECISIONS.get(str(gate.get("decision")), "bold")
    write(Text(str(gate.get("text", "")), style=style), soft_wrap=True)  # one line, to be searched for


def heading(gate: Mapping[str, Any]) -> str:
    """How was judged, in a few words."""
    mode = "verdicts only" if gate.get("mode") is None else gate["mode"]
    return (
        f"{mode}, against {gate['baseline']}, margin {points_text(gate['margin'])}, "
        f"alpha {gate['alpha']:g} over all benchmarks of a checkpoint"
    )


def section(gate: Mapping[str, Any] | None) -> str:
    """The part of ``report.html``; empty without a gate."""
    if gate is None:
        return ""
    rows = "\n".join(_row(line) for line in ordered(tuple(lines_from_json(gate))))
    head = "".join(
        f"<th{_number(name in NUMERIC)}>{name}</th>"
        for name in ("verdict", "checkpoint", "benchmark", *NUMERIC, "baseline and reasons")
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in gate.get("notes", ()))
    return (
        f'<h2>Gate</h2>\n<p class="note"><strong>{escape(str(gate.get("text", "")))}</strong></p>\n'
        f'<p class="faint">{escape(heading(gate))}</p>\n'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>\n{notes}'
    )


NUMERIC: Final = ("value", "points", "p (Holm)")


def _row(line: Line) -> str:
    against = baseline_text(line)
    reasons = [*([against] if against else []), *reason_texts(line)]
    bad = " some" if line.fails or line.invalid else ""
    return (
        f'<tr class="primary"><td class="{bad.strip()}">{escape(line.kind)}</td>'
        f'<td class="name quiet">{escape(line.checkpoint)}</td>'
        f'<td class="name quiet">{escape(line.benchmark)} {escape(line.metric)}</td>'
        f'<td class="number quiet">{value_text(line.value)}{small(line.about)}</td>'
        f'<td class="number quiet">{difference_text(line) or "-"}</td>'
        f'<td class="number quiet">{escape(p_text(line.p_adjusted))}</td>'
        f'<td class="quiet">{"<br>".join(escape(text) for text in reasons)}</td></tr>'
    )


def small(text: str) -> str:
    """Words below a number of the page; empty for none."""
    return f"<small>{escape(text)}</small>" if text else ""


def _number(yes: bool) -> str:
    return ' class="number"' if yes else ""


def _numbers(line: Line, several: bool) -> str:
    """Benchmark, metric, value, difference with its interval, and p."""
    whose = f"{line.checkpoint}  " if several else ""
    metric = "" if line.metric == "composite" else f" {line.metric}"
    about = f" ({line.about})" if line.about else ""
    parts = [f"{whose}{line.benchmark}{metric}  {value_text(line.value)}{about}"]
    if line.difference is not None:
        holm = f" (Holm over {line.family})" if line.family > 1 else ""
        parts.append(f"{difference_text(line)} points")
        parts += _test_text(line, holm)
    return ", ".join(parts)


def _test_text(line: Line, holm: str) -> list[str]:
    """The p-value, Holm's where it was corrected; nothing without a test."""
    if line.p_adjusted is not None:
        return [f"p {p_text(line.p_adjusted)}{holm}"]
    return [] if line.p is None or not line.early else [f"p {p_text(line.p)} at its look"]
