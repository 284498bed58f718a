"""Paths and modules that documents, comments and messages name are there, and tests lie beside their subjects."""

from __future__ import annotations

import importlib
import re

from tests.support.places import PACKAGE, ROOT

FOLDERS = ("docs", "harness", "evals", "perf", "simulations", "fixtures/build")
TEXTS = sorted(
    [
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tox.ini", ".ci/run")
    ]
    + [
        path
        for folder in FOLDERS
        for end in ("md", "py", "yml")
        for path in (ROOT / folder).rglob(f"*.{end}")
    ]
)
PATH = re.compile(r"(?<![\w/.\-*])(?:harness|tests|perf|simulations|evals|fixtures|docs)/[\w./-]*\w")
MODULE = re.compile(r"\bpytest_touchstone(?:\.[A-Za-z_]\w*)+")
OF_THE_WHEEL = ("pytest_touchstone/_shipped", "pytest_touchstone/evals", "pytest_touchstone.evals")
BESIDES = (
    "action",
    "browser",
    "conformance",
    "drill",
    "evals",
    "fixtures",
    "perf",
    "repo",
    "seams",
    "simulations",
    "support",
)
"""Folders of tests whose subject is no folder of the package."""


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


def test_what_a_text_names_is_there() -> None:
    missing = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        absent = [name for name in {*PATH.findall(text), *from_root(text)} if not (ROOT / name).exists()]
        absent += [name for name in set(MODULE.findall(text)) if not there(name)]
        missing += [
            f"{path.relative_to(ROOT)}: {name}" for name in absent if not name.startswith(OF_THE_WHEEL)
        ]
    assert not missing


def test_no_text_names_a_folder_of_one_machine() -> None:
    folder = re.compile(r"(?<![\w.~/>*-])/(?:home|root|Users|work)/\w+")
    naming = {str(path.relative_to(ROOT)): folder.findall(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert not {path: names for path, names in naming.items() if names}


def test_a_test_lies_in_the_folder_of_its_subject() -> None:
    astray = []
    for path in sorted((ROOT / "tests").glob("*/**/test_*.py")):
        folder = path.parent.relative_to(ROOT / "tests")
        if folder.parts[0] in BESIDES:
            continue
        name = f"{path.stem.removeprefix('test_')}.py"
        subjects = {module.parent.relative_to(PACKAGE) for module in (PACKAGE / folder.parts[0]).rglob(name)}
        if not (PACKAGE / folder).is_dir() or (subjects and folder not in subjects):
            astray.append(str(path.relative_to(ROOT)))
    assert not astray


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = [term.lower() for term in re.findall(r"^- \*\*(.+?)\*\*", text, flags=re.MULTILINE)]
    assert terms == sorted(set(terms))
