"""``report.html``: the whole run on one page that needs nothing else: no script, no network, no other
file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from harness.compare.formats import korean_mlm
from harness.reports import changes, formatting, gate
from harness.reports.style import CSS
from harness.results.summary import Declaration, Metric, Result, Summary, totals

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
FAULTS_SHOWN: Final = 200
OPEN_GROUPS: Final = 60
"""Rows of groups that are unfolded from the start; more stay folded."""

HEAD: Final = ("value", "95 % interval", "", "n", "errors", "skipped")
NUMERIC: Final = ("rows", "value", "95 % interval", "n", "errors", "skipped")


def page(summary: Summary) -> str:
    """The page as text."""
    title = f"Results of {summary.run_id}"
    sections = [
        _opening(summary),
        gate.section(summary.gate),
        _results(summary),
        _composites(summary),
        changes.section(summary),
        _packs(summary),
        _checkpoints(summary),
        _list("Left out", formatting.left_out(summary)),
        _list("Undefined numbers", formatting.reasons(summary)),
        _faults(summary),
        _manifest(summary.manifest),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS}\n</style>\n</head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body>\n</html>\n"
    )


def _opening(summary: Summary) -> str:
    found = totals(summary)
    faults = ("errors", "timeouts", "lost")
    shown = [name for name in found if found[name] or name in ("collected", "scored", "skipped", "errors")]
    labels = {"collected": "items collected", "truncated": "requests cut"}
    tiles = "".join(
        f"<li{_class('some' if name in faults and found[name] else '')}><strong>{found[name]}</strong>"
        f"{labels.get(name, name)}</li>"
        for name in shown
    )
    command = " ".join(["pytest", *map(str, summary.manifest.get("command", []))])
    reused = (f"Reused: {text}" for text in formatting.reused(summary))
    lines = (
        *reused,
        *formatting.generated(summary),
        *formatting.programs(summary),
        *formatting.effort(summary),
    )
    effort = "".join(f'<p class="faint">{escape(text)}</p>' for text in lines)
    warnings = (*formatting.broken(summary), *formatting.warnings(summary))
    notes = "".join(f'<p class="note">{escape(text)}</p>' for text in warnings)
    return (
        f"<h1>Results of {escape(summary.run_id)}</h1>\n"
        f'<p class="faint">{escape(_when(summary))}</p>\n<p><code>{escape(command)}</code></p>\n'
        f'<ul class="tiles">{tiles}</ul>\n{effort}{notes}'
    )


def _when(summary: Summary) -> str:
    began = summary.manifest.get("began")
    clock = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) if isinstance(began, (int, float)) else ""
    )
    took = f"{formatting.duration(summary.seconds)} in all" if summary.seconds else ""
    checkpoints = formatting.count(len(formatting.checkpoints(summary)), "checkpoint")
    return ", ".join(part for part in (clock, took, checkpoints) if part)


# Results


def _results(summary: Summary) -> str:
    blocks = [
        _benchmark(declared, [result for result in summary.results if result.benchmark == declared.name])
        for declared in summary.declarations
    ]
    legend = (
        '<p class="faint">The bar spans 0 to 1, or the range of the intervals where values lie outside; '
        "the band is the 95 % interval. The first metric, in bold, is the primary one. "
        "Errors count errors, timeouts and lost items; metrics are over scored items only.</p>"
    )
    return "<h2>Results</h2>\n" + legend + "\n" + "\n".join(blocks) if blocks else ""


def _benchmark(declared: Declaration, results: Sequence[Result]) -> str:
    whole = [result for result in results if result.group is None]
    groups = [result for result in results if result.group is not None]
    shots = formatting.asked_alike(whole)
    broken = "NOT VALID" if any(result.invalid for result in whole) else ""
    open_to_all = "UNSANDBOXED" if any(result.unsandboxed for result in whole) else ""
    facts = ", ".join(
        part
        for part in (
            broken,
            open_to_all,
            shots,
            f"version {declared.version}",
            declared.pack.name,
            formatting.common_mark(whole),
        )
        if part
    )
    blocks = [f"<h3>{escape(declared.name)}<small>{escape(facts)}</small></h3>", _table(whole)]
    if groups:
        count = formatting.count(len({result.group for result in groups}), "group")
        blocks.append(
            f"<details{' open' if len(groups) <= OPEN_GROUPS else ''}><summary>{count}</summary>"
            f"{_group_table(groups)}</details>"
        )
    if declared.rule or declared.source:
        text = "\n\n".join(part for part in (declared.rule, declared.source) if part)
        blocks.append(f"<details><summary>how it is scored</summary><pre>{escape(text)}</pre></details>")
    return "\n".join(blocks)


def _table(results: Sequence[Result]) -> str:
    """Metric by metric, so that checkpoints stand below each other."""
    names = dict.fromkeys(metric.name for result in results for metric in formatting.shown_metrics(result))
    rows = []
    for name in names:
        same = [result for result in results if name in result.metrics]
        rows += _rows(name, name, same, _scale(result.metrics[name] for result in same))
    return _grid(("metric", "checkpoint", *HEAD), rows, "results")


def _group_table(results: Sequence[Result]) -> str:
    """Group by group, the primary metric only."""
    name = results[0].primary
    scale = _scale(result.metrics[name] for result in results)
    rows = []
    for group in dict.fromkeys(result.group for result in results):
        rows += _rows(group or "", name, [result for result in results if result.group == group], scale)
    return _grid((f"group, {escape(name)}", "checkpoint", *HEAD), rows, "results")


def _rows(label: str, name: str, results: Sequence[Result], scale: tuple[float, float]) -> list[str]:
    """A row a checkpoint, the label on the first."""
    return [
        _row(
            result, result.metrics[name], scale, label if index == 0 else "", formatting.who(result, results)
        )
        for index, result in enumerate(results)
    ]


def _row(result: Result, metric: Metric, scale: tuple[float, float], label: str, who: str) -> str:
    primary = metric.name == result.primary
    counts = (result.faults, result.skipped) if primary else ("", "")
    return (
        f"<tr{_class('primary' if primary and result.group is None else '')}>"
        f'<td class="name">{escape(label)}</td><td class="name quiet">{escape(who)}</td>'
        + _estimate(
            metric.value,
            metric.low,
            metric.high,
            scale,
            method=f"{metric.method} interval",
            mark=result.mark * primary,
        )
        + f'<td class="number quiet">{metric.n}</td>'
        f'<td class="number quiet{" some" if counts[0] else ""}">{counts[0]}</td>'
        f'<td class="number quiet">{counts[1]}</td></tr>'
    )


def _estimate(
    value: float | None,
    low: float | None,
    high: float | None,
    scale: tuple[float, float],
    *,
    method: str,
    mark: str,
) -> str:
    limits = formatting.interval(low, high)
    return (
        f'<td class="number">{formatting.number(value)}{gate.small(mark)}</td>'
        f'<td class="number quiet" title="{escape(method)}">{limits}</td>'
        f'<td class="bar">{_bar(value, low, high, scale)}</td>'
    )


def _bar(value: float | None, low: float | None, high: float | None, scale: tuple[float, float]) -> str:
    """A track over the scale, the interval as a band on it, the value as a tick; empty without a value."""
    if value is None:
        return ""
    left, right = scale
    ends = (value, value if low is None else low, value if high is None else high)
    at = (100 * (one - left) / (right - left) for one in ends)
    tick, start, end = (min(100.0, max(0.0, one)) for one in at)
    band = f'<i style="left:{start:.1f}%;width:{end - start:.1f}%"></i>' if end > start else ""
    return f'<span class="track" aria-hidden="true">{band}<b style="left:{tick:.1f}%"></b></span>'


def _scale(metrics: Iterable[Metric]) -> tuple[float, float]:
    """0 to 1 where everything lies within; else from the lowest to the highest limit."""
    limits = [one for m in metrics for one in (m.low, m.value, m.high) if one is not None]
    if not limits or (min(limits) >= 0 and max(limits) <= 1):
        return 0.0, 1.0
    low, high = min(limits), max(limits)
    margin = (high - low) / 10 or 1.0
    return low - margin, high + margin


def _composites(summary: Summary) -> str:
    if not summary.composites:
        return ""
    rows = [
        f'<tr class="primary"><td class="name">{escape(one["name"])}</td>'
        f'<td class="name quiet">{escape(one["checkpoint"])}</td>'
        + _estimate(
            one["value"], one["low"], one["high"], (0.0, 1.0), method=one["method"], mark=one.get("mark", "")
        )
        + '<td colspan="3"></td></tr>'
        for one in summary.composites
    ]
    best = [
        f"Best by {key}: {top['checkpoint']}, {formatting.number(top['value'])} "
        f"(standard error {formatting.number(top['stderr'])}); "
        f"the highest of {top['of']} noisy values is more likely too high than too low."
        for key, top in korean_mlm.best(korean_mlm.rows(summary)).items()
        if top["of"] > 1
    ]
    formulas = dict.fromkeys(f"{one['name']} = {one['formula']}" for one in summary.composites)
    lines = "".join(f"<p>{escape(line)}</p>" for line in (*formulas, *best))
    head = ("score", "checkpoint", *HEAD[:3], "", "", "")
    return "<h2>Composite scores</h2>\n" + _grid(head, rows, "results") + lines


# What it was computed from


def _packs(summary: Summary) -> str:
    rows = [
        _cells(
            [info.name, str(info.rows), info.origin, info.path, info.sha256],
            ["name", "number", "", "name long", "name long"],
        )
        for info in formatting.packs(summary)
    ]
    return "<h2>Data</h2>\n" + _grid(("pack", "rows", "from", "path", "SHA-256"), rows) if rows else ""


def _checkpoints(summary: Summary) -> str:
    known = {str(info.get("name")): info for info in summary.checkpoints}
    rows = []
    for name, what in formatting.checkpoints(summary).items():
        info = known.get(name, {})
        source = str(info.get("source") or info.get("path") or "")
        rows.append(
            _cells(
                [name, what, source, str(info.get("fingerprint") or "")],
                ["name", "", "name long", "name long"],
            )
        )
    return "<h2>Checkpoints</h2>\n" + _grid(("name", "what", "source", "fingerprint"), rows) if rows else ""


def _faults(summary: Summary) -> str:
    rows = [
        f'<tr><td>{escape(fault["status"])}</td><td class="name long">{escape(fault["item"])}</td>'
        f"<td><pre>{escape(fault['message'])}</pre></td></tr>"
        for fault in summary.faults[:FAULTS_SHOWN]
    ]
    rest = len(summary.faults) - len(rows)
    more = f"<p>and {rest} more, in errors.log</p>" if rest else ""
    return "<h2>Faults</h2>\n" + _grid(("status", "item", "message"), rows) + more if rows else ""


def _list(heading: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{heading}</h2>\n<ul>{items}</ul>" if items else ""


def _manifest(manifest: Mapping[str, Any]) -> str:
    """The manifest without the checkpoints, which have a table of their own."""
    rows = [
        f"<dt>{escape(str(key))}</dt><dd>{_value(value)}</dd>"
        for key, value in manifest.items()
        if key != "checkpoints"
    ]
    return f"<h2>Manifest</h2>\n<dl>{''.join(rows)}</dl>" if rows else ""


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = (f'<span class="faint">{escape(str(k))}</span> {_value(v)}' for k, v in value.items())
        return ", ".join(parts)
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"<code>{escape(plain)}</code>"


# Pieces


def _grid(head: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    cells = "".join(f"<th{_class('number' if name in NUMERIC else '')}>{name}</th>" for name in head)
    body = "\n".join(rows)
    table = f"<table{_class(kind)}><thead><tr>{cells}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _cells(texts: Sequence[str], classes: Sequence[str]) -> str:
    cells = (f"<td{_class(name)}>{escape(text)}</td>" for text, name in zip(texts, classes, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
