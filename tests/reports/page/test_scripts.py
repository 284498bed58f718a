"""The scripts of the page make no markup of texts, and are all in it."""

from __future__ import annotations

import re

from pytest_touchstone.reports.page.builder import FOLDER, SCRIPTS

MAKING_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|setHTML"
    r"|\beval\b|new Function|setTimeout\(\s*[\"'`]"
)


def test_the_scripts_are_those_of_the_folder() -> None:
    assert sorted(SCRIPTS) == sorted(path.stem for path in (FOLDER / "script").glob("*.js"))


def test_no_script_makes_markup_or_code_of_a_text() -> None:
    for name in SCRIPTS:
        text = (FOLDER / "script" / f"{name}.js").read_text(encoding="utf-8")
        assert not MAKING_MARKUP.findall(text), name
        assert "</" not in text, name
