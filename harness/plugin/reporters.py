"""Where a finished run is told besides its folder: ``--eval-markdown``, ``--junitxml``, and GitHub Actions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.core.files import unwritable, write_atomic
from harness.reports import github, markdown
from harness.results.summary import Summary


class Wrong(NamedTuple):
    """A fault, and whether a person had asked for the thing, so that the run must not end well."""

    line: str
    asked: bool


def check_paths(output: Path, markdown: Path | None) -> None:
    """Raises ``pytest.UsageError`` where the run's folder or the Markdown cannot be written; neither is made here."""
    if (why := unwritable(output)) is not None:
        raise pytest.UsageError(f"--eval-output {output}: {why}; choose another folder")
    if markdown is None:
        return
    if markdown.is_dir():
        raise pytest.UsageError(f"--eval-markdown {markdown}: this is a folder; name a file")
    if (why := unwritable(markdown.parent)) is not None:
        raise pytest.UsageError(f"--eval-markdown {markdown}: {why}; choose another file")


def publish(
    config: pytest.Config, summary: Summary, target: Path | None, environment: Mapping[str, str]
) -> list[Wrong]:
    """Writes the run's Markdown where it was asked for, and its properties into JUnit's XML; gives what went wrong.

    Before pytest's own end of the session, which writes the XML.
    """
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        for name, value in github.properties(summary):
            xml.add_global_property(name, value)
    text = markdown.page(summary)
    wrong = []
    if target is not None:
        try:
            write_atomic(target, text)
        except OSError as error:
            wrong.append(Wrong(f"cannot write --eval-markdown {target}: {error.strerror}", asked=True))
    if github.on_github(environment) and (fault := github.append_summary(environment, text)):
        wrong.append(Wrong(fault, asked=False))
    return wrong


def shown(lines: list[str], environment: Mapping[str, str]) -> list[str]:
    """The report's lines, on GitHub such that it takes none of them for a command."""
    return [github.harmless(line) for line in lines] if github.on_github(environment) else lines


def commands(summary: Summary, environment: Mapping[str, str]) -> list[str]:
    """The lines that GitHub turns into annotations; none elsewhere."""
    return github.commands(summary) if github.on_github(environment) else []
