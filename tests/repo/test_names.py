"""Paths and modules that documents, comments and messages name are there, and tests lie beside their subjects."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.support.places import PACKAGE, ROOT

FOLDERS = ("docs", "harness", "evals", "perf", "simulations", "fixtures/build")
TEXTS = sorted(
    [ROOT / "README.md", ROOT / "tox.ini", ROOT / ".ci" / "run"]
    + [
        path
        for folder in FOLDERS
        for end in ("md", "py", "yml")
        for path in (ROOT / folder).rglob(f"*.{end}")
    ]
)
PATH = re.compile(r"(?<![\w/.\-*])(?:harness|tests|perf|simulations|evals|fixtures|docs)/[\w./-]*\w")
MODULE = re.compile(r"\bharness(?:\.[A-Za-z_]\w*)+")
OF_THE_WHEEL = ("pytest_touchstone/_shipped", "pytest_touchstone/evals", "pytest_touchstone.evals")
BESIDES = ("browser", "conformance", "evals", "fixtures", "perf", "repo", "seams", "simulations", "support")
"""Folders of tests whose subject is no folder of the harness."""


def there(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


def from_root(text: str) -> set[str]:
    """Return the paths that code puts together from the root: ``ROOT / "perf" / "measure.py"``."""
    return {"/".join(re.findall('"([^"]+)"', one)) for one in re.findall(r'\bROOT((?: / "[^"]+")+)', text)}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_text_names_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    missing = [name for name in set(PATH.findall(text)) if not (ROOT / name).exists()]
    missing += [name for name in set(MODULE.findall(text)) if not there(name)]
    missing += [name for name in from_root(text) if not (ROOT / name).exists()]
    assert not [name for name in missing if not name.startswith(OF_THE_WHEEL)]


@pytest.mark.parametrize(
    "folder", [path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))]
)
def test_a_folder_of_tests_is_named_as_the_folder_of_its_subjects(folder: str) -> None:
    assert folder in BESIDES or (PACKAGE / folder).is_dir()


def test_tests_named_like_a_module_lie_where_it_lies() -> None:
    tests, modules = ROOT / "tests", PACKAGE
    astray = []
    for path in sorted(tests.rglob("test_*.py")):
        place = path.parent.relative_to(tests)
        if place.parts[0] not in BESIDES:
            name = f"{path.stem.removeprefix('test_')}.py"
            folders = {
                module.parent.relative_to(modules) for module in (modules / place.parts[0]).rglob(name)
            }
            if not (modules / place).is_dir() or (folders and place not in folders):
                astray.append(str(path.relative_to(ROOT)))
    assert not astray


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = [term.lower() for term in re.findall(r"^- \*\*(.+?)\*\*", text, flags=re.MULTILINE)]
    assert terms == sorted(set(terms))
