"""Make ``docs/terminal.svg``, the picture of a terminal in the README, from the recorded results of a real run.

python docs/build/terminal_picture.py                  makes the picture again
python docs/build/terminal_picture.py results/RUN_ID   takes the results of another run first

The picture needs no font from a network and has a background of its own, so it is readable on light and dark pages.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.summary import load_summary

DOCS = Path(__file__).resolve().parents[1]
RECORDED = DOCS / "build" / "demonstration"
PICTURE = DOCS / "terminal.svg"
COLUMNS = 100
FILES = ("report.html", "results.csv", "checkpoints.csv")
"""Files of a run that its report names."""

SHOWN = ("schema", "run_id", "began", "command", "demonstration", "settings")
"""The keys of the manifest that the picture needs."""

COMMAND = "$ pytest evals/"
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"

THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(230, 237, 243),
    normal=[
        *((72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (177, 186, 196)),
    ],
    bright=[
        *((110, 118, 129), (255, 161, 152), (126, 231, 135), (242, 204, 96)),
        *((165, 214, 255), (226, 197, 255), (179, 240, 255), (255, 255, 255)),
    ],
)
"""A dark terminal."""


def report(width: int = COLUMNS, *, color: bool = True) -> str:
    """Return what the terminal shows: the command, and the report of the recorded results as it is printed today."""
    recorded = json.loads((RECORDED / "summary.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        folder = Path("results", recorded["run_id"])
        folder.mkdir(parents=True)
        for name in FILES:
            (folder / name).write_text("recorded", encoding="utf-8")
        shutil.copy(RECORDED / "summary.json", folder)
        return f"{COMMAND}\n{render(load_summary(folder), width, color)}"


def picture() -> str:
    """Return the picture as SVG, with colours as attributes, since not every reader of SVG knows style sheets."""
    columns = max(map(len, report(color=False).splitlines()))
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(report()), soft_wrap=True)
    svg = console.export_svg(title="pytest-touchstone", theme=THEME, unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: ?(?:Fira Code|arial)[^;]*;", f"font-family: {FONTS};", svg)
    for name, style in re.findall(r"\.(terminal-r\d+) \{ (.*?) ?\}", svg):
        parts = dict(part.strip().split(": ") for part in style.split(";") if part.strip())
        attributes = " ".join(f'{key}="{value}"' for key, value in parts.items())
        size = f'font-family="{FONTS}" font-size="20"'
        svg = svg.replace(f'<text class="{name}" ', f'<text class="{name}" {attributes} {size} ')
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def record(folder: Path) -> None:
    """Take the summary of a run, without what it says of the machine and its places."""
    text = (folder / "summary.json").read_text(encoding="utf-8")
    text = re.sub(r'"/[^"]*?/(?=(?:fixtures|evals|results)/)', '"', text)
    summary = json.loads(re.sub(r'"/[^"]*?/(?=\.cache/)', '"~/', text))
    summary["directory"] = f"results/{summary['run_id']}"
    summary["manifest"] = {name: summary["manifest"].get(name) for name in SHOWN}
    RECORDED.mkdir(exist_ok=True)
    line = json.dumps(summary, ensure_ascii=False, separators=(",", ":"))
    (RECORDED / "summary.json").write_text(f"{line}\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        record(Path(argument))
    PICTURE.write_text(picture(), encoding="utf-8")
