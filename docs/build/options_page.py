"""Make ``docs/options.md``, the page of all options and exit codes, from ``core/settings.toml``.

python docs/build/options_page.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.settings import settings_table

PAGE: Final = Path(__file__).resolve().parents[1] / "options.md"

BACKSLASH: Final = "\\"

TITLES: Final[Mapping[str, str]] = {
    "checkpoints": "What is scored",
    "items": "On which items",
    "answers": "How it is asked",
    "programs": "Benchmarks of programs",
    "machine": "On which machine",
    "served": "Served models",
    "results": "Results",
    "gate": "Against a baseline",
}
"""The headings of the sections that have options."""


def options_page() -> str:
    """Return ``docs/options.md``."""
    lines = [
        "# Options and exit codes",
        "",
        "Each option can be given in [several places](choosing.md#where-settings-come-from), and `run.json` records",
        "all. `--eval-set KEY=VALUE` is for settings that mostly stay the same, and stand in `[tool.touchstone]`. If",
        "another plug-in has `--gate` or another short name, use `--eval-gate`.",
        "",
        "The last column says what an option changes. Results are compared, and cached answers taken, only if all",
        "options that affect *answers* agree, and those that affect *items*, unless the items are known. Fingerprints",
        "identify *checkpoints*. No score depends on *output*, and on *speed* only by",
        "[rounding](number-types.md#guarantees).",
        "",
        "Commands, such as `touchstone best`, `accept` and `report --format`, have a `--help` of their own.",
    ]
    for section, title in TITLES.items():
        lines += ["", f"## {title}", "", "| option | | affects |", "| --- | --- | --- |"]
        for row in (row for row in settings_table().values() if row.option and row.section == section):
            text = row.help[0].upper() + row.help[1:]
            cells = (f"`{row.usage}`", f"{text}.", row.affects)
            lines.append(f"| {' | '.join(cell.replace('|', BACKSLASH + '|') for cell in cells)} |")
    lines += ["", "## Exit codes", "", "| code | |", "| --- | --- |"]
    lines += [f"| {int(code)} | {code.sentence} |" for code in ExitCode]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
