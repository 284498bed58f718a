"""Where a finished run is told besides its folder: ``--eval-markdown``, ``--junitxml``, and GitHub Actions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.files import write_atomic
from harness.reports import ci, markdown
from harness.results import Summary


def check_markdown(path: Path | None) -> None:
    """Raises ``pytest.UsageError`` where no file can be written; its folder is made when it is."""
    if path is not None and path.is_dir():
        raise pytest.UsageError(f"--eval-markdown {path}: this is a folder; name a file")


def publish(
    config: pytest.Config, summary: Summary, target: Path | None, environment: Mapping[str, str]
) -> list[str]:
    """Writes the run's Markdown where it was asked for, and its properties into JUnit's XML; gives what went wrong.

    Before pytest's own end of the session, which writes the XML.
    """
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        for name, value in ci.properties(summary):
            xml.add_global_property(name, value)
    text = markdown.page(summary)
    wrong = []
    if target is not None:
        try:
            write_atomic(target, text)
        except OSError as error:
            wrong.append(f"cannot write --eval-markdown {target}: {error.strerror}")
    if ci.on_github(environment) and (fault := ci.append_summary(environment, text)):
        wrong.append(fault)
    return wrong


def shown(lines: list[str], environment: Mapping[str, str]) -> list[str]:
    """The report's lines, on GitHub such that it takes none of them for a command."""
    return [ci.harmless(line) for line in lines] if ci.on_github(environment) else lines


def commands(summary: Summary, environment: Mapping[str, str]) -> list[str]:
    """The lines that GitHub turns into annotations; none elsewhere."""
    return ci.commands(summary) if ci.on_github(environment) else []
