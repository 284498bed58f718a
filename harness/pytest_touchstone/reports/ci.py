"""Reports for jobs of continuous integration: Markdown, JUnit's test cases and properties, annotations for GitHub.

Markdown is for a comment on a pull request or the summary of a job. A run begins with the gate's decision; where that
is red, with what dropped, how to look at it, and how to accept it. A comparison has one table per pair, its lists and
notes below, and flips folded.

The forms of GitHub's workflow commands are those of its page "Workflow commands for GitHub Actions". The escaping is
that of ``@actions/core`` (``command.ts``): in a message %, CR and LF are escaped, in a property also : and ,.

Names of checkpoints, benchmarks and items come from outside: in Markdown they stand in code spans, where nothing links,
mentions or formats, and whatever else is printed is escaped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.comparison_verdicts import POOLED
from pytest_touchstone.compare.gate.result import PASSING, shown_lines
from pytest_touchstone.compare.pair import PairComparison
from pytest_touchstone.core import coverage
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.text import escape_invisible, redact_home
from pytest_touchstone.document import render_markdown
from pytest_touchstone.document.formatting import markdown_code, markdown_text
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.best import best_so_far, change_text
from pytest_touchstone.reports.comparison import FlipsByBenchmark
from pytest_touchstone.reports.gate import difference_text, reason_texts, sign_key
from pytest_touchstone.reports.run_report import run_report
from pytest_touchstone.results.summary import Summary, whole_results

ROWS: Final = 100
"""The most lines of a table; a comment on GitHub holds 65,536 characters."""

MOST_SIGNS: Final = 2000


def markdown_page(summary: Summary) -> str:
    """Return the report of a run as Markdown."""
    blocks = render_markdown(run_report(summary, details=True), most_rows=ROWS, deeper=2)
    return "\n\n".join([f"### Benchmarks: {markdown_code(summary.run_id)}", *blocks]) + "\n"


def failed_page(code: int, message: str) -> str:
    """Return the report of a run without results: its exit code and the error message."""
    meaning = next((f": {exit_code.sentence}" for exit_code in ExitCode if exit_code == code), "")
    head = f"### Benchmarks: no results\n\n:x: **exit code {code}{markdown_text(meaning)}**"
    return f"{head}\n\n{markdown_text(message[:MOST_SIGNS])}\n"


def comparison_page(pairs: Sequence[PairComparison], flips: Sequence[FlipsByBenchmark] = ()) -> str:
    """Return all comparisons as Markdown. Foreign texts are escaped."""
    return "\n\n".join(render_markdown(comparison.sections_of(pairs, flips))) + "\n"


# JUnit and GitHub

ANNOTATIONS: Final = 10
"""The number of annotations of each kind that GitHub shows per step."""

ANNOTATED: Final = {"passed": "notice", "shown": "notice", "first": "notice", "unsure": "warning"}
"""The kinds of annotation for decisions; others are errors."""

_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def properties(summary: Summary) -> list[tuple[str, str]]:
    """Return the JUnit properties of the test suite, as names and values.

    These are every metric of every result with its ``mark`` and ``asked``, its change against the best so far, then the
    gate's lines.
    """
    pairs = []
    for result in whole_results(summary):
        prefix = f"touchstone.{result.checkpoint}.{result.benchmark}"
        marks = {
            "asked": coverage.prompt_mark(result.shots, result.template, result.pick),
            "mark": result.mark,
        }
        pairs += [(f"{prefix}.{name}", text) for name, text in marks.items() if text]
        pairs += [(f"{prefix}.{metric.name}", _text(metric.value)) for metric in result.metrics.values()]
    for composite in summary.composites:
        prefix = f"touchstone.{composite['checkpoint']}.{composite['name']}"
        pairs += [(f"{prefix}.mark", composite["mark"])] if composite.get("mark") else []
        pairs.append((prefix, _text(composite["value"])))
    for row in summary.changes:
        metric = "" if row["metric"] == COMPOSITE else f".{row['metric']}"
        prefix = f"touchstone.{row['checkpoint']}.{row['benchmark']}{metric}"
        pairs += [
            (f"{prefix}.best_so_far", _text(row["best"])),
            (f"{prefix}.change", f"{change_text(row)} against {best_so_far(row)}"),
        ]
    gate = summary.gate
    if gate is not None:
        pairs += [(f"touchstone.gate.{name}", str(gate[name])) for name in ("decision", "exit_code", "text")]
        lines = shown_lines(gate)
        counts = Counter((line.checkpoint, line.benchmark) for line in lines)
        for line in lines:
            prefix = f"touchstone.gate.{line.checkpoint}.{line.benchmark}"
            if counts[line.checkpoint, line.benchmark] > 1:
                prefix += f".{line.metric}"
            if line.metric == POOLED:
                prefix = f"touchstone.gate.{line.checkpoint}.{POOLED}"
            pairs += [(prefix, line.kind), (f"{prefix}.why", "; ".join(reason_texts(line)))]
            pairs += [(f"{prefix}.about", line.about)] if line.about else []
            if line.comparison.difference is not None:
                pairs.append((f"{prefix}.difference", _text(line.comparison.difference)))
    return [(_NOT_XML.sub("?", name), _NOT_XML.sub("?", value)) for name, value in pairs]


class GateCase(NamedTuple):
    """A line of the gate as a JUnit test case. ``failed`` means that the gate does not pass because of the line."""

    classname: str
    name: str
    text: str
    failed: bool


def gate_cases(summary: Summary) -> list[GateCase]:
    """Return a test case for each line of the gate.

    If the gate fails for another reason, such as an unreadable baseline, one more case stands for the decision. Without
    ``--gate`` no case fails.
    """
    gate = summary.gate
    if gate is None:
        return []
    decides = gate["mode"] is not None
    cases = [
        GateCase(
            _shown(f"touchstone.gate.{line.checkpoint}"),
            _shown(f"{line.benchmark} {line.metric}"),
            _shown(f"{line.kind}: {_line_text(line)}"),
            decides and bool(line.fails or line.invalid),
        )
        for line in shown_lines(gate)
    ]
    if gate["decision"] not in PASSING and not any(case.failed for case in cases):
        cases.append(GateCase("touchstone.gate", "decision", _shown(str(gate["text"])), failed=True))
    return cases


def gate_commands(summary: Summary) -> list[str]:
    """Return GitHub workflow commands: errors for failing lines, and one for the decision.

    The decision is a warning where it is unsure.
    """
    gate = summary.gate
    if gate is None:
        return []
    failing = [line for line in shown_lines(gate) if line.fails or line.invalid]
    annotations = []
    for line in failing[:ANNOTATIONS] if gate["mode"] is not None else []:
        title = f"{line.checkpoint}: {line.benchmark} {line.label} {line.kind}"
        annotations.append(command("error", _shown(title), _shown(_line_text(line))))
    kind = ANNOTATED.get(sign_key(gate), "error")
    return [*annotations, command(kind, "touchstone gate", _shown(str(gate["text"])))]


def _line_text(line: BenchmarkComparison) -> str:
    """Return the difference, mark, baseline and reasons of a line."""
    texts = (difference_text(line), line.about, *reason_texts(line, "against "))
    return "; ".join(text for text in texts if text)


def failure_command(code: int, message: str) -> str:
    """Return the GitHub workflow command for a run without results."""
    return command("error", f"touchstone, exit code {code}", _shown(message))


def _shown(text: str) -> str:
    return _NOT_XML.sub("?", escape_invisible(redact_home(redact(text))))


def command(kind: str, title: str, message: str) -> str:
    """Return a GitHub workflow command with title and message escaped."""
    return f"::{kind} title={_escape(title, inside=True)}::{_escape(message)}"


def append_summary(environment: Mapping[str, str], text: str) -> str | None:
    """Append a text to the GitHub job summary, if there is one. Returns the error message, None if it succeeded."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return None
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text + "\n")
    except OSError as error:
        return f"cannot write the job's summary {path}: {error.strerror}"
    return None


def _escape(text: str, *, inside: bool = False) -> str:
    for sign, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(sign, code)
    return text.replace(":", "%3A").replace(",", "%2C") if inside else text


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.6g}"
