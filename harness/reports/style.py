"""The style sheet of ``report.html``: light and dark, readable on a phone and on paper, nothing fetched."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfc; --ink: #1c1e21; --faint: #666c75; --line: #dfe1e5; --row: #f0f1f4;
  --accent: #1f5fbf; --band: #b9d0f2; --bad: #b3261e; --bad-paper: #fdeceb; --warn-paper: #fdf4dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15171a; --ink: #e4e6e9; --faint: #979da7; --line: #33373d; --row: #23272c;
    --accent: #7fb0ff; --band: #2c4a7a; --bad: #ff8a80; --bad-paper: #3a1d1b; --warn-paper: #37301a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans KR", sans-serif;
}
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; padding-bottom: .3rem; border-bottom: 1px solid; }
h2 { border-color: var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
h3 small { font-weight: normal; color: var(--faint); margin-left: .5rem; }
p { margin: .3rem 0; }
.faint, dt { color: var(--faint); }
code, pre, .name {
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .9em;
}
.name { white-space: nowrap; }
code, .long { overflow-wrap: anywhere; white-space: normal; }
pre { white-space: pre-wrap; margin: .3rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .28rem 1rem .28rem 0; vertical-align: top; }
th {
  font-weight: 600; font-size: .85em; color: var(--faint);
  border-bottom: 1px solid var(--line); white-space: nowrap;
}
td { border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: none; }
.number { text-align: right; white-space: nowrap; }
tr.primary td { font-weight: 650; }
td.number small { display: block; font-weight: normal; color: var(--faint); white-space: normal; }
tr.primary td.quiet { font-weight: normal; }
tr td.some { color: var(--bad); font-weight: 650; }
td.bar { min-width: 8rem; padding-top: .62rem; }
.results th:nth-child(1) { width: 21%; }
.results th:nth-child(2) { width: 21%; }
.results th:nth-child(3) { width: 9%; }
.results th:nth-child(4) { width: 15%; }
.results th:nth-child(5) { width: 16%; }
.results th:nth-child(n + 6) { width: 6%; }
.track { position: relative; display: block; height: .6rem; border-radius: .3rem; background: var(--row); }
.track i { position: absolute; top: 0; bottom: 0; border-radius: .3rem; background: var(--band); }
.track b {
  position: absolute; top: -.15rem; bottom: -.15rem; width: 3px; margin-left: -1.5px;
  border-radius: 1px; background: var(--accent);
}
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1.1rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--row); border-radius: .5rem; padding: .45rem .9rem; min-width: 6rem; }
.tiles strong { display: block; font-size: 1.25rem; }
.tiles .some { background: var(--bad-paper); }
.tiles .some strong { color: var(--bad); }
.note { background: var(--warn-paper); border-radius: .4rem; padding: .5rem .8rem; margin: .5rem 0; }
details { margin: .3rem 0; }
summary { cursor: pointer; color: var(--accent); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .5rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; } }
""".strip()
