"""Tutorials as programs: their files are written, their commands run, and what they print is compared.

A tutorial is Markdown. A fenced block whose info string names a file (``python test_capitals.py``) is that file; rows
that lie beside the pages are there too. In a ``console`` block a line that begins with ``$ `` is a command, and what
follows it is what it prints. Blocks with
``console slow`` take long, and quick tests leave them out.

    what the tutorial shows     what may be printed instead
    a line                      the same line, with other digits
    ``...``                     any lines
    ``# exit code 8``           nothing: the command's exit code, 0 where there is no such line

``python -m tests.support.tutorials [PAGE ...]`` runs the tutorials, ``slow`` blocks included, and writes what their
commands print into them where it differs. Lines that stand for ``...`` stay left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.forking import commands

ROOT = Path(__file__).parents[2]
BUSY = re.compile(r"load [\d.]+ on \d+ cores?: other programs compute here")
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"# exit code (\d+)")
CONSOLE, SLOW = "console", "console slow"
COLUMNS = "100"
LEFT_OUT = "..."


@dataclass
class Step:
    """A command of a tutorial as it was typed, the lines that it is shown to print, and its exit code."""

    typed: list[str]
    shown: list[str] = field(default_factory=list)
    code: int = 0

    @property
    def command(self) -> str:
        """The command on one line."""
        return " ".join(line.removesuffix("\\").strip() for line in self.typed)

    def differs(self, code: int, printed: list[str]) -> str | None:
        """Return what is shown and was not printed, or another exit code; None where all is as shown."""
        if code != self.code:
            return f"# exit code {self.code}"
        wrong = matches(self.shown, printed)
        return None if wrong is None else f"shown, not printed at its place: {wrong}"


@dataclass
class Ran:
    """A step after its command has run."""

    step: Step
    code: int
    printed: list[str]


def tutorials() -> list[Path]:
    """Return the pages of tutorials."""
    return sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def files_of(text: str) -> dict[str, str]:
    """Return the files that a tutorial shows, by name."""
    named = {}
    for block in FENCE.finditer(text):
        _, _, name = block["info"].partition(" ")
        if name and block["info"] != SLOW:
            named[name] = block["text"]
    return named


def steps_of(block: str) -> list[Step]:
    """Return the commands that a block shows, in order."""
    steps: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append(Step([line[2:]]))
        elif not steps[-1].shown and steps[-1].typed[-1].endswith("\\"):
            steps[-1].typed.append(line)
        elif found := CODE.fullmatch(line):
            steps[-1].code = int(found[1])
        else:
            steps[-1].shown.append(line)
    return steps


def play(text: str, folder: Path, *, slow: bool = False) -> Iterator[Ran]:
    """Write the files of a tutorial into a folder, run its commands there, and yield each as it ends."""
    for rows in sorted((ROOT / "docs" / "tutorials").glob("*.jsonl")):
        shutil.copy(rows, folder)
    for name, content in files_of(text).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for block in FENCE.finditer(text):
        if block["info"] == CONSOLE or (slow and block["info"] == SLOW):
            for step in steps_of(block["text"]):
                yield Ran(step, *run(step.command, folder))


def run(command: str, folder: Path) -> tuple[int, list[str]]:
    """Run a command of a tutorial in its folder; return its exit code and the lines that it prints, but for the one
    that a busy machine adds."""
    place = os.pathsep.join([str(commands()), str(Path(sys.executable).parent), os.environ["PATH"]])
    hidden = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "TOUCHSTONE_DATA", "FORCE_COLOR", "GITHUB_ACTIONS")
    known = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=known | {"PATH": place, "COLUMNS": COLUMNS, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return done.returncode, [line for line in lines if not BUSY.match(line)]


def plain(line: str) -> str:
    """Return a line without what differs from run to run: digits, and the width that they take."""
    return re.sub(r"[\d.,]*\d", "#", re.sub(r"\s+|[-=─━]{3,}", " ", line)).strip()


def matches(shown: list[str], printed: list[str]) -> str | None:
    """Return the first line that is shown and not printed at its place; None where there is none."""
    place, anywhere = 0, False
    for line in shown:
        if line.strip() == LEFT_OUT:
            anywhere = True
            continue
        rest = [plain(one) for one in printed[place:]]
        if plain(line) not in (rest if anywhere else rest[:1]):
            return line
        place += rest.index(plain(line)) + 1
        anywhere = False
    return None if anywhere or not any(line.strip() for line in printed[place:]) else "(the end)"


def shortened(shown: list[str], printed: list[str]) -> list[str]:
    """Return the lines that are printed; those that the page leaves out today stay left out."""
    if not any(line.strip() == LEFT_OUT for line in shown):
        return printed
    wanted = {plain(line) for line in shown}
    lines: list[str] = []
    for line in printed:
        if plain(line) in wanted:
            lines.append(line)
        elif lines[-1:] != [LEFT_OUT]:
            lines.append(LEFT_OUT)
    return lines


def updated(text: str, folder: Path) -> str:
    """Return a tutorial with what its commands print now, where that differs."""
    played = play(text, folder, slow=True)

    def block(found: re.Match[str]) -> str:
        if found["info"] not in (CONSOLE, SLOW):
            return found[0]
        lines = []
        for step in steps_of(found["text"]):
            ran = next(played)
            print(f"$ {step.command}", ran.step.differs(ran.code, ran.printed) or "as shown", sep="\n    ")
            same = step.differs(ran.code, ran.printed) is None
            lines += [f"$ {step.typed[0]}", *step.typed[1:]]
            lines += step.shown if same else shortened(step.shown, ran.printed)
            lines += [f"# exit code {ran.code}"] * (ran.code != 0)
        return "\n".join([f"```{found['info']}", *lines, "```"])

    return FENCE.sub(block, text)


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or tutorials():
        with tempfile.TemporaryDirectory() as temporary:
            page.write_text(updated(page.read_text(encoding="utf-8"), Path(temporary)), encoding="utf-8")
