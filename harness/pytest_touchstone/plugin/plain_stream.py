"""The stream that pytest's report goes to, on which texts of models, data and benchmarks are only read.

pytest writes messages of exceptions, captured output and names as they are. A sign that a terminal obeys is named, but
for the colours, and no key is shown; where a service reads commands in the log, none is written but on ``stream_of``.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any, Final, TextIO

import pytest

from pytest_touchstone.core.keys import redact_key_forms
from pytest_touchstone.core.text import escape_ci_commands, escape_invisible, is_ci_log

_REWRITTEN: Final = re.compile(r"(?:\x1b\[[0-9;]*m)*\r")
"""The beginning of what pytest writes over a line."""

_KEPT: Final = 80
"""The signs of the line so far by which it is decided whether a command begins."""


class PlainStream:
    """A text stream in front of another, ``stream``. ``colours``: those of a terminal pass."""

    def __init__(self, stream: TextIO, *, colours: bool, controls: bool, log: bool) -> None:
        """Wrap a stream.

        Args:
            stream: Where the text is written.
            colours: Whether colours of a terminal pass.
            controls: Whether control characters pass, as where another plug-in draws on the terminal.
            log: Whether the stream is a CI log, where a line may be a command.

        """
        self.stream = stream
        self._colours, self._controls, self._log = colours, controls, log
        self._line = ""

    def write(self, text: str) -> int:
        """Write the text, made harmless; return the number of signs given."""
        size, text = len(text), redact_key_forms(text)
        if not self._controls:
            start = found.end() if (found := _REWRITTEN.match(text)) else 0
            text = text[:start] + escape_invisible(text[start:], colours=self._colours)
        if self._log:
            before = self._line
            text = escape_ci_commands(before + text)[len(before) :]
            line = (before + text).rpartition("\n")[2].rpartition("\r")[2]
            # What is white so far may still begin a command; of anything else only the end counts.
            self._line = line if len(line) <= _KEPT else f".{line[-_KEPT:]}" if line.strip() else line[:_KEPT]
        self.stream.write(text)
        return size

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the stream has."""
        return getattr(self.stream, name)


def install_plain_stream(config: pytest.Config) -> None:
    """Put such a stream before that of pytest's reporter, once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    writer = config.get_terminal_writer()
    if not isinstance(writer._file, PlainStream):  # private: a writer has no public way to its file
        own = type(reporter).__module__.startswith("_pytest.")
        plain: Any = PlainStream(writer._file, colours=writer.hasmarkup, controls=not own, log=is_ci_log())
        writer._file = plain
        # So too before those that tests print on, until pytest ends.
        for name in ("stdout", "stderr") if is_ci_log() and config.getoption("capture") == "no" else ():
            stream = getattr(sys, name)
            setattr(sys, name, PlainStream(stream, colours=True, controls=False, log=True))
            config.add_cleanup(functools.partial(setattr, sys, name, stream))


def mask_keys(report: pytest.TestReport) -> None:
    """Remove keys from a report, which other plug-ins write to files unchanged."""
    report.sections = [(title, redact_key_forms(text)) for title, text in report.sections]
    if report.failed and (plain := redact_key_forms(report.longreprtext)) != report.longreprtext:
        report.longrepr = plain


def stream_of(config: pytest.Config) -> TextIO:
    """Return the stream of pytest's reporter, which writes text unchanged."""
    file: Any = config.get_terminal_writer()._file
    stream: TextIO = file.stream if isinstance(file, PlainStream) else file
    return stream
