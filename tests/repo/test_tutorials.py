"""Tutorials do what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tutorials import files_of, matches, run, steps_of, tutorials


@pytest.mark.parametrize("page", tutorials(), ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, content in files_of(text).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    steps = steps_of(text)
    assert steps
    for step in steps:
        code, printed = run(step.command, tmp_path)
        output = "\n".join(printed)
        assert code == step.code, f"$ {step.command}\n{output}"
        wrong = matches(step.shown, printed)
        assert wrong is None, f"$ {step.command}\nshown, not printed at its place: {wrong}\n{output}"


def test_a_line_that_is_not_printed_is_found() -> None:
    printed = ["acc 0.531", "saved results/20260101"]
    assert matches(["acc 0.25", "saved results/1"], printed) is None
    assert matches(["...", "saved results/1"], printed) is None
    assert matches(["acc 0.25", "..."], printed) is None
    assert matches(["acc 0.25"], printed) == "(the end)"
    assert matches(["f1 0.25", "..."], printed) == "f1 0.25"
    assert matches(["...", "saved elsewhere"], printed) == "saved elsewhere"
