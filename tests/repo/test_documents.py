"""Documents that are made from the code, or say what it says, are current."""

from __future__ import annotations

from pathlib import Path

from harness.core.settings import options_page

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page()
